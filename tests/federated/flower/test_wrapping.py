"""`Encrypted` around Flower's strategies: what each makes of the mean, what is refused, and apps of every kind."""

import numpy as np
import pytest
from flwr.app import ArrayRecord, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.server.strategy import FedAvg as OldFedAvg
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import FedAvg

from blindsight.errors import InputError
from blindsight.federated.flower import Encrypted, EncryptedFedAvg, encrypted_updates, simulated_nodes
from tests.federated.flower.federation import GENERATOR, MEMBERS, PATIENCE, Federation, app_of, model, moving, numpy_of
from tests.federated.flower.localgrid import LocalGrid, LocalNode

EXAMPLES = {"ann": 100, "bob": 2000, "cem": 700, "dan": 10_000}
START = model(w=np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4), b=np.zeros(4), seen=np.array(3))


def pulled(name):
    """Return an app that goes part of the way to a point of its own, as far as a proximal term lets it."""
    target = np.random.default_rng(MEMBERS.index(name)).normal(size=16)

    def train(message, context):
        arrays, config = numpy_of(message.content["arrays"]), message.content["config"]
        pace = 0.5 / (1 + config.get("proximal-mu", 0.0))
        w, b, seen = arrays["w"], arrays["b"], arrays["seen"]
        new = {
            "w": (w + pace * (target[:12].reshape(3, 4) - w)).astype(np.float32),
            "b": b + pace * (target[12:] - b),
            "seen": np.array(int(seen) + len(name) * 10),
        }
        metrics = MetricRecord({"num-examples": EXAMPLES[name], "loss": float(np.sum(new["b"] ** 2)), "secret": 42.0})
        return RecordDict({"arrays": model(**new), "metrics": metrics})

    return train


def plainly(strategy, trains, arrays=START, rounds=3):
    grid = LocalGrid({place: LocalNode(app_of(train, []), {}) for place, train in enumerate(trains, 1)})
    return strategy.start(grid, arrays, num_rounds=rounds)


def encrypted(federation, strategy, **settings):
    return Encrypted(strategy, **federation.settings(**settings))


STRATEGIES = {
    "FedAvg": {},
    "FedProx": {"proximal_mu": 0.7},
    "FedAvgM": {"server_momentum": 0.9, "server_learning_rate": 0.5},
    "FedAdam": {"eta": 0.05},
    "FedYogi": {"eta": 0.05},
    "FedAdagrad": {"eta": 0.05},
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_each_strategy_does_what_it_does_in_the_clear(tmp_path, name):
    kind, settings = getattr(flower, name), {"min_train_nodes": 4, "min_available_nodes": 4, **STRATEGIES[name]}
    plain = plainly(kind(**settings), map(pulled, MEMBERS))
    federation = Federation(tmp_path, pulled)
    result = encrypted(federation, kind(**settings), metrics=["loss"]).start(federation.grid, START, num_rounds=3)
    for key, value in numpy_of(plain.arrays).items():
        found = numpy_of(result.arrays)[key]
        assert found.dtype == value.dtype
        # Adam and Yogi divide by the root of a small mean of squares, at least tau = 1e-3, so errors grow by 1 / tau
        assert found == pytest.approx(value, abs=2e-6 if name.startswith(("FedAvg", "FedProx")) else 1e-4)
    for number in (1, 2, 3):
        told = result.train_metrics_clientapp[number]
        assert told["loss"] == pytest.approx(plain.train_metrics_clientapp[number]["loss"], rel=1e-5)
        assert set(told) == {"loss", "contributors"}  # what was not named stays on the nodes


@pytest.mark.parametrize("scheme", ["masks", "bfv"])
def test_weights_of_1_to_10_million_examples_are_fedavgs(tmp_path, scheme):
    for number, counts in enumerate([(1, 10_000_000, 2, 80_000), (1, 1, 1, 1), (20_000, 80_000, 30_000, 45_000)]):
        examples = dict(zip(MEMBERS, counts, strict=True))
        drawn = {name: np.random.default_rng(len(name)).normal(size=5) + MEMBERS.index(name) for name in MEMBERS}
        trains = {name: moving(lambda who, round, drawn=drawn: drawn[who], examples[name])(name) for name in MEMBERS}
        start = model(w=np.zeros(5))
        (tmp_path / str(number)).mkdir()
        federation = Federation(tmp_path / str(number), trains.__getitem__)
        strategy = encrypted(federation, FedAvg(fraction_evaluate=0.0), scheme=scheme)
        moved = numpy_of(strategy.start(federation.grid, start, num_rounds=1).arrays)["w"]
        expected = np.average(list(drawn.values()), axis=0, weights=counts).astype(np.float32)
        assert moved == pytest.approx(expected, abs=1e-6)
        (report,) = strategy.reports
        assert report.examples == pytest.approx(sum(counts))
        assert (report.capped, report.clipped) == (0, 0)


def test_what_is_cut_and_clipped_is_counted_and_said_on_both_sides(tmp_path, caplog):
    change = {"ann": 1000.0, "bob": 0.1, "cem": 0.1, "dan": 0.1}
    federation = Federation(tmp_path, moving(lambda name, round: change[name], examples=500))
    strategy = encrypted(federation, FedAvg(fraction_evaluate=0.0), max_examples=100)
    strategy.start(federation.grid, model(w=np.zeros(7)), num_rounds=1)
    (report,) = strategy.reports
    assert (report.clipped, report.capped, report.examples) == (7, 4, pytest.approx(400))
    for words in ("7 values of this node", "7 values of all members", "4 members have more than 100", "count as 100"):
        assert words in caplog.text
    wide = encrypted(federation, FedAvg(fraction_evaluate=0.0))
    moved = numpy_of(wide.start(federation.grid, model(w=np.zeros(7)), num_rounds=1).arrays)["w"]
    assert moved == pytest.approx(np.full(7, 250.075), abs=1e-4)  # float32
    assert wide.reports[0].clipped == 0


REFUSED = ["Krum", "MultiKrum", "Bulyan", "FedMedian", "FedTrimmedAvg", "FedXgbBagging", "FedXgbCyclic"]


def test_strategies_that_need_single_updates_are_refused(tmp_path):
    federation = Federation(tmp_path, pulled)
    refused = [getattr(flower, name)() for name in REFUSED] + [flower.QFedAvg(client_learning_rate=0.1)]
    refused.append(flower.DifferentialPrivacyServerSideFixedClipping(FedAvg(), 1.0, 1.0, 4))
    for strategy in refused:
        with pytest.raises(InputError, match=type(strategy).__name__):
            encrypted(federation, strategy)
    for other, words in ((OldFedAvg(), "flwr.serverapp"), (encrypted(federation, FedAvg()), "already")):
        with pytest.raises(InputError, match=words):
            encrypted(federation, other)
    with pytest.raises(InputError, match="home"):
        Encrypted(FedAvg())
    with pytest.raises(InputError, match=r"Encrypted\(FedAdam"):
        type("Both", (EncryptedFedAvg, flower.FedAdam), {})


class Guarded(FedAvg):
    """A strategy that plays its rounds through a method of its own, and lets nobody but itself write to it."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.played = 0
        self.__dict__["closed"] = True

    def __setattr__(self, name, value):
        if "closed" in self.__dict__ and name != "played":
            raise AttributeError(name)
        super().__setattr__(name, value)

    def start(self, grid, *arguments, **named):
        return self.play(grid, *arguments, **named)

    def play(self, *arguments, **named):
        assert isinstance(self, Guarded)
        self.played += 1
        return super().start(*arguments, **named)


def test_a_wrapped_strategy_is_never_written_to(tmp_path):
    federation = Federation(tmp_path, pulled)
    own = Guarded(fraction_evaluate=0.0)
    before = dict(own.__dict__)
    strategy = encrypted(federation, own)
    result = strategy.start(federation.grid, START, num_rounds=2)
    assert [report.contributors for report in strategy.reports] == [MEMBERS, MEMBERS]
    assert not np.array_equal(numpy_of(result.arrays)["w"], numpy_of(START)["w"])
    assert own.__dict__ == before | {"played": 1}


class Recording(FedAvg):
    """A strategy of an app's own, with a start and an aggregation of its own."""

    started, seen = False, ()

    def start(self, *arguments, **named):
        self.started = True
        return super().start(*arguments, **named)

    def aggregate_train(self, server_round, replies):
        replies = list(replies)
        self.seen = (*self.seen, len(replies))
        return super().aggregate_train(server_round, replies)


def test_a_strategy_of_ones_own_runs_its_own_code_on_the_mean(tmp_path):
    federation = Federation(tmp_path, pulled)
    own = Recording(
        train_metrics_aggr_fn=lambda records, key: MetricRecord({"twice": 2 * records[0]["metrics"]["loss"]})
    )
    result = encrypted(federation, own, metrics=["loss"]).start(federation.grid, START, num_rounds=2)
    plain = plainly(FedAvg(min_train_nodes=4), map(pulled, MEMBERS), rounds=2)
    assert own.started
    assert own.seen == (1, 1)
    loss = plain.train_metrics_clientapp[2]["loss"]
    assert result.train_metrics_clientapp[2]["twice"] == pytest.approx(2 * loss, rel=1e-5)
    assert "configure_train" not in vars(own)  # as it was


def test_a_strategy_that_sends_each_node_something_else_is_refused(tmp_path):
    class Cyclic(FedAvg):
        def configure_train(self, server_round, arrays, config, grid):
            messages = list(super().configure_train(server_round, arrays, config, grid))
            messages[0].content["arrays"] = model(w=np.ones(3))
            return [type(message)(RecordDict(dict(message.content)), place, "train")
                    for place, message in enumerate(messages)] + self._construct_messages(
                        RecordDict({"arrays": arrays, "config": config}), [1], "train")  # fmt: skip

    federation = Federation(tmp_path, pulled)
    with pytest.raises(InputError, match="Cyclic"):
        encrypted(federation, Cyclic()).start(federation.grid, START, num_rounds=1)


def test_a_fraction_of_the_members_is_asked(tmp_path):
    names = (*MEMBERS, "eve", "fay")
    federation = Federation(tmp_path, moving(lambda name, round: 0.5), names)
    strategy = encrypted(federation, FedAvg(fraction_train=0.5, fraction_evaluate=0.0))
    strategy.start(federation.grid, model(w=np.zeros(3)), num_rounds=3)
    asked = [report.contributors for report in strategy.reports]
    assert [len(each) for each in asked] == [3, 3, 3]
    terms = strategy._run()[0].terms
    assert asked == [terms.sampled(number) for number in (1, 2, 3)]


def test_no_training_at_all_is_as_the_strategy_wants(tmp_path):
    federation = Federation(tmp_path, pulled)
    result = encrypted(federation, FedAvg(fraction_train=0.0)).start(federation.grid, START, num_rounds=1)
    assert result.evaluate_metrics_clientapp[1]["node"] == pytest.approx(2.5)


def test_who_comes_late_is_taken_in_between_rounds(tmp_path):
    federation = Federation(tmp_path, moving(lambda name, round: float(MEMBERS.index(name))))
    late = federation.grid.nodes.pop(4)

    def evaluate(number, arrays):
        if number == 1:
            federation.grid.nodes[4] = late

    strategy = encrypted(federation, FedAvg(fraction_evaluate=0.0), members=3, patience=PATIENCE)
    start = model(w=np.zeros(3))
    result = strategy.start(federation.grid, start, num_rounds=3, evaluate_fn=evaluate)
    # A node that is new is asked who it is, and heard the next time.
    assert [len(report.contributors) for report in strategy.reports] == [3, 4, 4]
    assert numpy_of(result.arrays)["w"] == pytest.approx(np.full(3, 1 + 1.5 + 1.5))


def test_a_key_generator_that_lost_its_disk_says_so_at_once_and_another_run_begins(tmp_path):
    federation = Federation(tmp_path, moving(lambda name, round: 0.5))
    generator = federation.stores["key generator"].path

    def evaluate(number, arrays):
        if number == 1:
            (generator / "runs").rename(tmp_path / "lost")

    strategy = encrypted(federation, FedAvg(fraction_evaluate=0.0), scheme="bfv")
    strategy.start(federation.grid, model(w=np.zeros(3)), num_rounds=3, evaluate_fn=evaluate)
    assert [bool(report.contributors) for report in strategy.reports] == [True, False, True]
    assert "begin another run" in strategy.reports[1].failure


def test_an_app_of_the_older_interface_is_refused_with_what_to_use(tmp_path):
    def client_fn(context):
        return NumPyClient().to_client()

    federation = Federation(tmp_path, pulled)
    federation.node("ann").app = ClientApp(client_fn, [encrypted_updates])
    strategy = encrypted(federation, FedAvg(fraction_evaluate=0.0))
    strategy.start(federation.grid, START, num_rounds=1)
    assert "@app.train()" in strategy.reports[0].missing["ann"]


def test_a_simulation_needs_no_keys_and_no_node_configs(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    shares = []

    def train(message, context):
        shares.append((context.node_config["partition-id"], context.node_config["num-partitions"]))
        arrays = ArrayRecord([message.content["arrays"]["w"].numpy() + context.node_config["partition-id"]])
        return RecordDict({"arrays": model(w=arrays["0"].numpy()), "metrics": MetricRecord({"num-examples": 1})})

    def node(place, count):
        return LocalNode(
            app_of(train, [simulated_nodes, encrypted_updates]), {"partition-id": place, "num-partitions": count}
        )

    grid = LocalGrid({700 - place: node(place, 6) for place in range(6)})
    strategy = Encrypted(FedAvg(fraction_evaluate=0.0), simulated=True, patience=PATIENCE, wait=0.05)
    result = strategy.start(grid, model(w=np.zeros(3)), num_rounds=2)
    assert numpy_of(result.arrays)["w"] == pytest.approx(np.full(3, 4.0))
    assert sorted(shares) == sorted([(place, 5) for place in range(5)] * 2)
    with pytest.raises(InputError, match="got 3"):
        Encrypted(FedAvg(), simulated=True, wait=0.05).start(
            LocalGrid({place: node(place, 3) for place in range(3)}), START
        )
    assert GENERATOR not in grid.nodes
