from functools import partial
from itertools import pairwise
from typing import ClassVar
from unittest.mock import patch

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg

from blindsight.errors import InputError, PrivacyError, UnknownNameError
from blindsight.federated.flower import Encrypted
from blindsight.federated.flower.transport import pack, unpack
from blindsight.federated.server import statement_of
from blindsight.federated.updates import AppLearner
from tests.federated.flower.federation import GENERATOR, MEMBERS, Federation, fedavg, model, moving, numpy_of
from tests.federated.flower.localgrid import LocalGrid
from tests.federated.parties import ALL_SCHEMES

START = model(w=np.zeros((6, 25), np.float32), count=np.array(3))
EXAMPLES = {"ann": 100, "bob": 2000, "cem": 700, "dan": 10_000}


def changes(rounds=3, size=(6, 25)):
    rng = np.random.default_rng(0)
    drawn = {
        (name, round): rng.normal(size=size).astype(np.float32) for name in MEMBERS for round in range(1, rounds + 1)
    }
    return lambda name, round: drawn[name, round]


def weighed(change, examples=EXAMPLES):
    return lambda name: moving(change, examples[name])(name)


def distance(one, other):
    return np.abs(numpy_of(one.arrays)["w"] - numpy_of(other.arrays)["w"]).max()


@pytest.mark.parametrize("scheme", ALL_SCHEMES)
def test_without_sparsity_the_result_is_that_of_fedavg(tmp_path, scheme):
    trains = weighed(changes())
    federation = Federation(tmp_path, trains)
    strategy = federation.strategy(scheme=scheme, sparsity=0.0)
    result = strategy.start(federation.grid, START, num_rounds=2)
    assert distance(result, fedavg({name: trains(name) for name in MEMBERS}, START, rounds=2)) < 2e-6
    assert [report.contributors for report in strategy.reports] == [MEMBERS] * 2
    assert result.train_metrics_clientapp[2] == MetricRecord({"contributors": 4})
    assert numpy_of(result.arrays)["count"] == 3


def swapped(message):
    arrays = numpy_of(message.content["arrays"])
    message.content["arrays"] = model(**arrays | {"w": np.full_like(arrays["w"], -1e6)})


def renamed(message):
    arrays = message.content["arrays"]
    message.content["arrays"] = ArrayRecord({"v" if name == "w" else name: value for name, value in arrays.items()})


def reordered(message):
    arrays = message.content["arrays"]
    message.content["arrays"] = ArrayRecord(dict(reversed(list(arrays.items()))))


def reconfigured(message):
    message.content["config"]["lr"] = 1e9


def retyped(message):
    message.content["config"]["server-round"] = float(message.content["config"]["server-round"])


def added(message):
    message.content["more"] = model(w=np.zeros(3, np.float32))


@pytest.mark.parametrize("change", [swapped, renamed, reordered, reconfigured, retyped, added])
def test_a_model_of_ones_own_for_each_member(tmp_path, change):
    """The SuperLink gave all but dan dead weights, so that the sum was dan's."""
    trained = []

    def trains(name):
        train = moving(changes())(name)
        return lambda message, context: trained.append(name) or train(message, context)

    federation = Federation(tmp_path, trains)
    moved = federation.grid._moved

    def superlink(message):
        arrived = moved(message)
        if arrived.has_content() and "arrays" in arrived.content and arrived.metadata.dst_node_id in (1, 2, 3):
            change(arrived)
        return arrived

    federation.grid._moved = superlink
    strategy = federation.strategy(scheme="bfv", fraction_evaluate=0.0)
    with pytest.raises(PrivacyError, match="no model"):
        strategy.start(federation.grid, START, num_rounds=1)
    assert trained == ["dan"]
    (report,) = strategy.reports
    assert not report.contributors
    assert "contributions of 1 members" in report.failure
    assert sorted(name for name, why in report.missing.items() if "signed" in why) == ["ann", "bob", "cem"]


def test_the_same_weights_in_other_bytes_are_the_same_model(tmp_path):
    """A second sum of them without bob would tell bob's update."""

    class Again(FedAvg):
        def configure_train(self, server_round, arrays, config, grid):
            numbers = numpy_of(START)
            if server_round > 1:
                numbers = {"none": np.zeros(0), **{name: array.astype(np.float64) for name, array in numbers.items()}}
                federation.grid.nodes.pop(2, None)
            return super().configure_train(server_round, model(**numbers), config, grid)

    federation = Federation(tmp_path, moving(changes()))
    strategy = Encrypted(Again(fraction_evaluate=0.0), **federation.settings())
    strategy.start(federation.grid, START, num_rounds=2)
    first, second = strategy.reports
    assert first.contributors == MEMBERS
    assert not second.contributors
    assert sum("answered this model" in why for why in second.missing.values()) == 3


class HostileLink(LocalGrid):
    """A SuperLink that tells some nodes something else than the others, from the messages of a kind on."""

    def lie(self, *nodes, since="hello", run_config=None, run=None, **metadata):
        self.lies, self.since, self.lying = (nodes, run_config, run, metadata), since, False

    def _handled(self, message):
        nodes, run_config, run, metadata = self.lies
        self.lying |= unpack(message.content)[0] == self.since
        if not self.lying or message.metadata.dst_node_id not in nodes:
            return super()._handled(message)
        honest = self.run_config
        self.run_config = honest if run_config is None else run_config
        message.metadata.__dict__.update(metadata)
        try:
            with patch("tests.federated.flower.localgrid.Context", partial(_context_of, run or {})):
                return super()._handled(message)
        finally:
            self.run_config = honest


def _context_of(run, *arguments):
    context = Context(*arguments)
    context.__dict__.update(run)
    return context


class TestWhatTheSuperLinkTellsTheAppBesidesTheMessage:
    CONFIG: ClassVar = {"local-epochs": 3, "rate": 1.0, "fit": True, "name": "1"}

    def learning(self, tmp_path, trained, run_config=None):
        def trains(name):
            def train(message, context):
                trained.append(name)
                step = changes()(name, message.content["config"]["server-round"])
                arrays = numpy_of(message.content["arrays"])
                arrays["w"] = (arrays["w"] + context.run_config["local-epochs"] * step).astype(np.float32)
                return RecordDict({"arrays": model(**arrays), "metrics": MetricRecord({"num-examples": 10})})

            return train

        federation = Federation(tmp_path, trains)
        for name in MEMBERS:
            app = federation.node(name).app
            warm = lambda message, context: Message(trains("warm")(message, context), reply_to=message)  # noqa: E731
            for register in (app.train("warmup"), app.evaluate("warmup"), app.query()):
                register(warm)
        federation.grid.__class__, federation.grid.run_config = HostileLink, dict(run_config or self.CONFIG)
        return federation

    @pytest.mark.parametrize("scheme", ["masks", "bfv"])
    @pytest.mark.parametrize(
        ("lie", "named"),
        [
            ({"run_config": CONFIG | {"local-epochs": 0}}, '"local-epochs": 0'),
            ({"run_config": CONFIG | {"rate": 1}}, '"rate": 1;'),
            ({"run_config": CONFIG | {"rate": True}}, '"rate": true'),
            ({"run_config": CONFIG | {"fit": 1}}, '"fit": 1'),
            ({"run_config": CONFIG | {"name": 1}}, '"name": 1;'),
            ({"run_config": CONFIG | {"more": 0}}, '"more": 0'),
            ({"run_config": {"local-epochs": 3}}, '"rate": 1.0'),
            ({"run": {"series_id": 7}}, "series_id: 7"),
            ({"run": {"run_id": 7}}, "run_id: 7"),
        ],
    )
    def test_a_member_that_is_told_something_else_is_not_in_the_run(self, tmp_path, scheme, lie, named, caplog):
        """Were bob in the sum with others whose epochs are 0, the sum would be bob's."""
        trained = []
        federation = self.learning(tmp_path, trained)
        federation.grid.lie(2, **lie)
        strategy = federation.strategy(scheme=scheme, fraction_evaluate=0.0)
        strategy.start(federation.grid, START, num_rounds=1)
        assert strategy.reports[0].contributors == ("ann", "cem", "dan")
        assert "bob" not in trained
        (said,) = {line for line in caplog.messages if "bob does not take part" in line}
        assert named in said

    @pytest.mark.parametrize("scheme", ["masks", "bfv"])
    def test_those_who_are_told_something_else_than_when_they_joined_refuse(self, tmp_path, scheme):
        trained = []
        federation = self.learning(tmp_path, trained)
        federation.grid.lie(1, 3, 4, since="contribute", run_config=self.CONFIG | {"local-epochs": 0})
        strategy = federation.strategy(scheme=scheme, fraction_evaluate=0.0)
        with pytest.raises(PrivacyError, match="no model"):
            strategy.start(federation.grid, START, num_rounds=1)
        assert set(trained) <= {"bob"}
        refused = strategy.reports[0].missing
        assert {name for name, why in refused.items() if '"local-epochs": 0' in why} == {"ann", "cem", "dan"}

    def test_also_if_it_is_all_of_them_between_rounds(self, tmp_path):
        trained = []
        federation = self.learning(tmp_path, trained)
        federation.grid.lie()
        strategy = federation.strategy(fraction_evaluate=0.0)

        def evaluate(number, arrays):
            if number == 1:
                federation.grid.run_config["local-epochs"] = 1

        strategy.start(federation.grid, START, num_rounds=2, evaluate_fn=evaluate)
        assert [report.contributors for report in strategy.reports] == [MEMBERS, ()]
        assert len(trained) == len(MEMBERS)

    @pytest.mark.parametrize("scheme", ["masks", "bfv"])
    @pytest.mark.parametrize(
        "metadata",
        [
            {"_message_type": "train.warmup"},
            {"_message_type": "evaluate"},
            {"_message_type": "evaluate.warmup"},
            {"_message_type": "query"},
            {"_group_id": "7"},
        ],
    )
    def test_no_other_function_of_the_app_is_asked(self, tmp_path, scheme, metadata):
        trained = []
        federation = self.learning(tmp_path, trained)
        federation.grid.lie(1, 3, 4, **metadata)
        strategy = federation.strategy(scheme=scheme, fraction_evaluate=0.0)
        with pytest.raises(PrivacyError, match="no model"):
            strategy.start(federation.grid, START, num_rounds=1)
        assert set(trained) <= {"bob"}
        (value,) = metadata.values()
        assert {name for name, why in strategy.reports[0].missing.items() if repr(value) in why} == {
            "ann",
            "cem",
            "dan",
        }

    @pytest.mark.parametrize("scheme", ["masks", "bfv", "plain"])
    def test_the_same_in_another_order_is_the_same(self, tmp_path, scheme):
        trained = []
        federation = self.learning(tmp_path, trained, self.CONFIG | {"path": 'a "b"\n\u00e9', "none": float("nan")})
        turned = dict(reversed(federation.grid.run_config.items()))
        federation.grid.lie(1, 3, run_config=turned)
        strategy = federation.strategy(scheme=scheme, fraction_evaluate=0.0)
        strategy.start(federation.grid, START, num_rounds=2)
        assert [report.contributors for report in strategy.reports] == [MEMBERS, MEMBERS]
        assert len(trained) == 2 * len(MEMBERS)

    def test_a_lying_member_stops_nobody_else(self, tmp_path, caplog):
        federation = self.learning(tmp_path, [])
        federation.grid.lie(2, run_config={"local-epochs\x1b[2J": 3, "long": "x" * 50_000})
        strategy = federation.strategy(fraction_evaluate=0.0)
        strategy.start(federation.grid, START, num_rounds=1)
        assert strategy.reports[0].contributors == ("ann", "cem", "dan")
        assert all(len(line) < 2000 and "\x1b" not in line for line in caplog.messages)


def test_members_stop_where_more_were_missing_than_the_terms_allow(tmp_path):
    federation = Federation(tmp_path, moving(changes(rounds=4), 10_000))
    strategy, bob = federation.strategy(max_absences=1, fraction_evaluate=0.0), federation.node("bob")

    def evaluate(number, arrays):
        if number == 1:
            del federation.grid.nodes[2]
        elif number == 3:
            federation.grid.nodes[2] = bob

    strategy.start(federation.grid, START, num_rounds=4, evaluate_fn=evaluate)
    rest = ("ann", "cem", "dan")
    assert [report.contributors for report in strategy.reports] == [MEMBERS, rest, rest, ()]


def test_all_may_weigh_the_same(tmp_path):
    change = changes()
    federation = Federation(tmp_path, weighed(change))
    strategy = federation.strategy(max_examples=0)
    first = strategy.start(federation.grid, START, num_rounds=1)
    mean = np.mean([change(name, 1) for name in MEMBERS], axis=0)
    assert numpy_of(first.arrays)["w"] == pytest.approx(mean, abs=1e-6)
    second = strategy.start(federation.grid, first.arrays, num_rounds=1)  # a strategy may start again
    assert numpy_of(second.arrays)["w"] == pytest.approx(2 * mean, abs=2e-6)


def test_apps_name_their_weight_as_they_like(tmp_path):
    def train(message, context):
        metrics = MetricRecord({"patients": 10_000})
        return RecordDict({"arrays": message.content["arrays"], "metrics": metrics})

    federation = Federation(tmp_path, lambda name: train)
    strategy = federation.strategy(weighted_by_key="patients", fraction_evaluate=0.0)
    strategy.start(federation.grid, START, num_rounds=1)
    assert strategy.reports[0].contributors == MEMBERS


def test_a_torch_model_with_integer_buffers(tmp_path):
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    start = ArrayRecord(net.state_dict())

    def trains(name):
        def train(message, context):
            state = message.content["arrays"].to_torch_state_dict()
            for place, value in enumerate(state.values()):
                value += place + len(name)
            metrics = MetricRecord({"num-examples": EXAMPLES[name]})
            return RecordDict({"arrays": ArrayRecord(state), "metrics": metrics})

        return train

    federation = Federation(tmp_path, trains)
    result = federation.strategy().start(federation.grid, start, num_rounds=2)
    plain = numpy_of(fedavg({name: trains(name) for name in MEMBERS}, start, rounds=2).arrays)
    state = result.arrays.to_torch_state_dict()
    net.load_state_dict(state)
    for name, value in state.items():  # integers too, by the strategy's own rule
        assert value.numpy().dtype == plain[name].dtype
        assert value.numpy() == pytest.approx(plain[name], abs=2e-5)


def test_with_sparsity_everything_arrives_in_the_end(tmp_path):
    change = changes(rounds=1)
    federation = Federation(tmp_path, moving(lambda name, round: change(name, 1) * (round == 1), 10_000))
    strategy = federation.strategy(scheme="block-dphe", sparsity=0.5, minimum_per_position=1)
    result = strategy.start(federation.grid, START, num_rounds=5)
    mean = np.mean([change(name, 1) for name in MEMBERS], axis=0)
    assert numpy_of(result.arrays)["w"] == pytest.approx(mean, abs=1e-5)


@pytest.mark.parametrize("scheme", ["masks", "bfv"])
def test_members_come_and_go_and_a_round_with_too_few_leaves_the_model(tmp_path, scheme, caplog):
    change, away = changes(rounds=4), {}
    federation = Federation(tmp_path, moving(change, 10_000))
    nodes, bob = federation.grid.nodes, federation.node("bob")

    def die(message, reply):
        if reply.metadata.message_type != "train" or "arrays" not in message.content:
            return reply
        del nodes[2]
        return None

    def evaluate(number, arrays):
        nodes.update(away)
        away.clear()
        bob.tamper = die if number == 1 else lambda message, reply: reply
        if number == 2:
            away.update({place: nodes.pop(place, bob) for place in (1, 2)})

    strategy = federation.strategy(scheme=scheme, fraction_evaluate=0.0)
    result = strategy.start(federation.grid, START, num_rounds=4, evaluate_fn=evaluate)
    present = {1: MEMBERS, 2: ("ann", "cem", "dan"), 3: (), 4: MEMBERS}
    assert [report.contributors for report in strategy.reports] == list(present.values())
    assert strategy.reports[1].missing["bob"]
    assert strategy.reports[2].failure
    assert "round 3" in caplog.text
    expected = sum(
        np.mean([change(name, round) for name in names], axis=0) for round, names in present.items() if names
    )
    assert numpy_of(result.arrays)["w"] == pytest.approx(expected, abs=2e-6)


GARBAGE = {
    "arrays of its own": lambda reply: RecordDict({"arrays": model(w=np.ones((6, 25)))}),
    "no parts": lambda reply: pack("contribute", []),
    "two parts": lambda reply: pack("contribute", [b"a", b"b"]),
    "random bytes": lambda reply: pack("contribute", [np.random.default_rng(0).bytes(3000)]),
    "numbers": lambda reply: RecordDict({"blindsight": ConfigRecord({**reply["blindsight"], "parts": [1.0]})}),
    "nothing": lambda reply: RecordDict(),
}


def test_garbage_from_a_member_changes_nothing_for_the_others(tmp_path):
    """Another kind of it in every round."""
    change = changes(rounds=len(GARBAGE))
    federation = Federation(tmp_path, moving(change, 10_000))

    def spoilt(message, reply):
        if "arrays" not in message.content:
            return reply
        return Message([*GARBAGE.values()][len(strategy.reports)](reply.content), reply_to=message)

    federation.node("dan").tamper = spoilt
    strategy = federation.strategy(scheme="bfv", fraction_evaluate=0.0)
    result = strategy.start(federation.grid, START, num_rounds=len(GARBAGE))
    for kind, report in zip(GARBAGE, strategy.reports, strict=True):
        assert report.contributors == MEMBERS[:3], kind
        assert report.missing["dan"], kind
    mean = sum(np.mean([change(name, round) for name in MEMBERS[:3]], axis=0) for round in range(1, len(GARBAGE) + 1))
    assert numpy_of(result.arrays)["w"] == pytest.approx(mean, abs=1e-5)


def test_evaluations_go_to_members_alone(tmp_path):
    federation = Federation(tmp_path, moving(changes()))
    strategy = federation.strategy()
    result = strategy.start(federation.grid, START, num_rounds=1)
    asked = [message.metadata.dst_node_id for message in federation.grid.wire if is_evaluation(message)]
    assert sorted(asked) == [1, 2, 3, 4]
    assert result.evaluate_metrics_clientapp[1]["node"] == pytest.approx(2.5)
    assert "evaluations" in strategy.statement.not_protected[-1]
    federation.grid.wire.clear()
    federation.strategy(fraction_evaluate=0.5).start(federation.grid, START, num_rounds=1)
    asked = {message.metadata.dst_node_id for message in federation.grid.wire if is_evaluation(message)}
    assert len(asked) == 2
    assert GENERATOR not in asked


def is_evaluation(message):
    return message.metadata.message_type == "evaluate" and message.metadata.reply_to_message_id == ""


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"key-generator": "SHA256:" + 43 * "A"}, "SHA256:" + 43 * "A"),
        ({"schemes": "masks"}, "accepts masks"),
        ({"quorum": 4}, "4 or more; got 3"),
        ({"insecure": False}, "full length"),
    ],
)
def test_a_member_that_insists_on_more_or_trusts_another_does_not_take_part(tmp_path, caplog, config, words):
    federation = Federation(tmp_path, moving(changes()))
    federation.node("dan").config.update(config)
    strategy = federation.strategy(scheme="block-dphe")
    strategy.start(federation.grid, START, num_rounds=1)
    assert strategy.reports[0].contributors == MEMBERS[:3]
    assert "dan does not take part" in caplog.text
    assert words in caplog.text


def test_without_enough_members_or_key_generator_the_run_does_not_begin(tmp_path):
    federation = Federation(tmp_path, moving(changes()))
    generator = federation.grid.nodes.pop(GENERATOR)
    with pytest.raises(PrivacyError, match="key generator"):
        federation.strategy().start(federation.grid, START)
    federation.grid.nodes[GENERATOR] = generator
    federation.grid.nodes[4].config["home"] = "/nowhere"
    with pytest.raises(PrivacyError, match=r"3 of 4.*Node 4"):
        federation.strategy().start(federation.grid, START)


def test_the_key_generator_killed_in_a_round_costs_that_round_alone(tmp_path):
    change = changes()
    federation = Federation(tmp_path, moving(change, 10_000))
    generator = federation.grid.nodes[GENERATOR]

    def evaluate(number, arrays):
        if number == 1:
            del federation.grid.nodes[GENERATOR]
        if number == 2:
            federation.grid.nodes[GENERATOR + 1] = generator

    strategy = federation.strategy(scheme="bfv")
    result = strategy.start(federation.grid, START, num_rounds=3, evaluate_fn=evaluate)
    assert [report.contributors for report in strategy.reports] == [MEMBERS, (), MEMBERS]
    assert "key generator" in strategy.reports[1].failure
    expected = sum(np.mean([change(name, round) for name in MEMBERS], axis=0) for round in (1, 3))
    assert numpy_of(result.arrays)["w"] == pytest.approx(expected, abs=2e-6)


def test_a_forged_weight_gives_no_mean(tmp_path):
    federation = Federation(tmp_path, moving(changes(), 10_000))

    honest = AppLearner.update_of

    def forged(*arguments):
        update, clipped = honest(*arguments)
        update.sent[-3] = -3.9  # all the others' weights but a little
        return update, clipped

    federation.node("dan").around = lambda: patch.object(AppLearner, "update_of", forged)
    strategy = federation.strategy(max_examples=10_000)
    with pytest.raises(PrivacyError, match=r"-0\.9"):
        strategy.start(federation.grid, START, num_rounds=1)
    assert "-0.9" in strategy.reports[0].failure


def test_the_statement_is_that_of_the_scheme_and_its_rounds(tmp_path):
    federation = Federation(tmp_path, moving(changes()))
    strategy = federation.strategy(scheme="bfv", fraction_evaluate=0.0)
    with pytest.raises(InputError, match="not set up yet"):
        _ = strategy.statement
    strategy.start(federation.grid, START, num_rounds=2)
    terms = strategy._run()[0].terms
    assert strategy.statement.who_sees == statement_of(terms).who_sees
    assert "examples" in strategy.statement.not_protected[-1]
    assert strategy.statement.guarantee == "cryptographic"


def test_members_too_many_for_a_fine_fixed_point_still_have_full_weight(tmp_path):
    federation = Federation(tmp_path, moving(changes(), 10_000))
    terms = federation.strategy(largest=0.01)._terms(10, "run", tuple(f"member {n}" for n in range(1000)))
    assert terms.values(np.array(terms.max_integer)) >= 1


@pytest.mark.parametrize(
    ("settings", "error", "sentence"),
    [
        ({"scheme": "bvf"}, UnknownNameError, "'bfv'"),
        ({"quorum": 5}, InputError, "3 ... 4"),
        ({"members": 2}, InputError, "3 ... 2"),
        ({"max_examples": -1}, InputError, "examples"),
        ({"fraction_fit": 0.5}, InputError, "fraction_train"),
        ({"train_metrics_aggr_fn": lambda records, key: MetricRecord()}, InputError, "metrics"),
        ({"metrics": ["a", "a"]}, InputError, "once"),
    ],
)
def test_settings_that_cannot_be_are_refused_at_once(tmp_path, settings, error, sentence):
    federation = Federation(tmp_path, moving(changes()))
    with pytest.raises(error, match=sentence):
        federation.strategy(**settings)


def test_a_model_without_numbers_and_evaluation_before_training_are_refused(tmp_path):
    federation = Federation(tmp_path, moving(changes()))
    with pytest.raises(InputError, match="nothing to learn"):
        federation.strategy().start(federation.grid, model(w=np.zeros(0)))
    with pytest.raises(InputError, match="not set up yet"):
        federation.strategy().configure_evaluate(1, START, RecordDict(), federation.grid)


def test_rounds_by_a_public_schedule_move_every_number_in_its_turn(tmp_path):
    size, seen = 400, []

    def change(name, round):
        return np.full(size, 0.25)

    def of(name):
        train = moving(change)(name)

        def watched(message, context):
            seen.append(numpy_of(message.content["arrays"])["w"].copy())
            return train(message, context)

        return watched

    made = Federation(tmp_path, of)
    strategy = made.strategy(scheme="masks", share=0.2, max_examples=0, fraction_evaluate=0.0)
    final = numpy_of(strategy.start(made.grid, model(w=np.zeros(size, np.float32)), num_rounds=9).arrays)["w"]
    held, turns = np.zeros(size), np.zeros(size)
    for before, after in pairwise([*seen[:: len(MEMBERS)], final]):
        moved = after != before
        assert np.count_nonzero(moved) == 80  # five blocks of 16
        held = 0.25 + 0.7 * held  # the change of a round, and 70% of what was not sent before
        np.testing.assert_allclose((after - before)[moved], held[moved], atol=1e-5)
        held[moved] = 0.0
        turns += moved
    assert turns.min() >= 1  # in nine rounds there is a whole cycle of five


def test_a_model_that_was_answered_is_refused_under_another_round_number(tmp_path):
    made = Federation(tmp_path, moving(lambda name, round: 0.5))
    strategy = made.strategy(scheme="masks", max_examples=0, fraction_evaluate=0.0)
    arrays = model(w=np.zeros(5, np.float32))
    for number in (1, 2):  # the same arrays again; the config that comes with them has another number
        messages = strategy.configure_train(number, arrays, ConfigRecord(), made.grid)
        strategy.aggregate_train(number, made.grid.send_and_receive(messages))
    first, second = strategy.reports
    assert first.contributors == MEMBERS
    assert not second.contributors
