import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

from blindsight.errors import DataError, InputError, MessageError, PrivacyError, StorageError
from blindsight.federated.flower.mod import answer, encrypted_updates
from blindsight.federated.flower.transport import is_ours, pack, response_in
from tests.federated.flower.federation import GENERATOR, MEMBERS, Federation, model, moving, numpy_of

START = model(w=np.zeros(30, np.float32))


def ones(name, round):
    return np.ones(30, np.float32)


def asked(federation, node, content, message_type):
    (reply,) = federation.grid.send_and_receive([Message(content, dst_node_id=node, message_type=message_type)])
    return reply


def plain_training():
    return RecordDict({"arrays": START, "config": ConfigRecord({"server-round": 1})})


@pytest.mark.parametrize("message_type", ["train", "train.again", "query"])
def test_a_plain_training_is_refused(tmp_path, message_type):
    federation = Federation(tmp_path, lambda name: lambda message, context: pytest.fail("the app was called"))
    app = federation.grid.nodes[1].app
    for register in (app.train("again"), app.query()):
        register(lambda message, context: pytest.fail("the app was called"))
    reply = asked(federation, 1, plain_training(), message_type)
    assert "Encrypted" in reply.error.reason


def test_an_evaluation_reaches_the_app_of_a_member_and_not_the_key_generator(tmp_path):
    federation = Federation(tmp_path, moving(ones))
    assert asked(federation, 1, plain_training(), "evaluate").content["metrics"]["node"] == 1
    assert "it has no data" in asked(federation, GENERATOR, plain_training(), "evaluate").error.reason


def test_what_an_app_that_fails_to_evaluate_says_stays_here(tmp_path, caplog):
    federation = Federation(tmp_path, moving(ones))
    app = federation.grid.nodes[1].app = ClientApp(mods=[encrypted_updates])
    app.evaluate()(secretive)
    reply = asked(federation, 1, plain_training(), "evaluate")
    assert "ValueError" in reply.error.reason
    assert "Jane Doe" not in reply.error.reason
    assert "Jane Doe" in caplog.text


def test_garbage_from_the_server_gets_a_sentence(tmp_path):
    federation = Federation(tmp_path, lambda name: lambda message, context: pytest.fail("the app was called"))
    kinds = ("contribute", "enrol", "set-up", "register", "advertise", "nonsense")
    parts = ([], [b""], [b"x" * 40], [b"a", b"b"], [b"\xff", b"b", b"c"])
    contents = [pack(kind, each) for kind in kinds for each in parts]
    contents.append(RecordDict({"blindsight": ConfigRecord({"kind": 1})}))  # a damaged head
    for content in contents:
        for node in (1, GENERATOR):
            reply = asked(federation, node, content, "train")
            assert is_ours(reply.content)
            error = response_in(reply.content).error
            assert error.endswith(".")
            assert "the node's log" not in error


def secretive(message, context):
    raise ValueError("could not convert 'Jane Doe, 40 Main St' to a number")


def changed(**arrays):
    def train(message, context):
        return RecordDict({"arrays": model(**arrays), "metrics": MetricRecord({"num-examples": 10})})

    return train


def reporting(*metrics):
    def train(message, context):
        records = {f"metrics-{place}": record for place, record in enumerate(metrics)}
        return RecordDict({"arrays": message.content["arrays"], **records})

    return train


BAD_APPS = [
    (secretive, "ValueError"),
    (lambda message, context: RecordDict(), "got 0"),
    (lambda message, context: RecordDict({"a": START, "b": START}), "got 2"),
    (reporting(MetricRecord({"loss": 0.5})), "num-examples"),
    (reporting(MetricRecord({"num-examples": 0})), "num-examples"),
    (reporting(MetricRecord({"num-examples": np.nan})), "num-examples"),
    (reporting(MetricRecord({"num-examples": [1, 2]})), "num-examples"),
    (reporting(*[MetricRecord({"num-examples": 2})] * 2), "num-examples"),
    (changed(w=np.full(30, np.nan, np.float32)), "not finite"),
    (changed(w=np.zeros(31, np.float32)), "(31,)"),
    (changed(v=np.zeros(30, np.float32)), "'w'"),
    (changed(w=np.zeros(30, np.complex64)), "complex64"),
]


def test_an_app_that_cannot_contribute_is_left_out_with_a_sentence(tmp_path, caplog):
    """Another fault in every round."""

    def bad(message, context):
        return BAD_APPS[message.content["config"]["server-round"] - 1][0](message, context)

    federation = Federation(tmp_path, lambda user: bad if user == "dan" else moving(ones)(user))
    strategy = federation.strategy(fraction_evaluate=0.0)
    strategy.start(federation.grid, START, num_rounds=len(BAD_APPS))
    for (_, words), report in zip(BAD_APPS, strategy.reports, strict=True):
        assert report.contributors == ("ann", "bob", "cem")
        assert words in report.missing["dan"]
        assert report.missing["dan"] in caplog.text
    assert not any("Jane Doe" in str(message) for message in federation.grid.wire)


def test_an_app_may_write_into_the_record_it_gets_and_return_arrays_in_any_order(tmp_path):
    start = model(a=np.zeros(4), b=np.zeros(3))

    def in_place(message, context):
        arrays = message.content["arrays"]
        arrays["a"], arrays["b"] = Array(arrays["a"].numpy() + 1), Array(arrays["b"].numpy() + 2)
        turned = ArrayRecord(dict(reversed(arrays.items())))
        return RecordDict({"arrays": turned, "metrics": MetricRecord({"num-examples": 10_000})})

    federation = Federation(tmp_path, lambda name: in_place)
    moved = numpy_of(federation.strategy().start(federation.grid, start, num_rounds=1).arrays)
    assert moved["a"] == pytest.approx(np.ones(4))
    assert moved["b"] == pytest.approx(np.full(3, 2.0))


def records_on(wire):
    return [message.content for message in wire if message.has_content()]


def floats_on(wire):
    """Return all floating-point arrays among messages, as bytes."""
    arrays = [
        array for content in records_on(wire) for record in content.array_records.values() for array in record.values()
    ]
    return {array.numpy().tobytes() for array in arrays if array.dtype.startswith("float")}


def bytes_on(wire):
    """Return all that travelled as one string of bytes."""
    return b"".join(part.deflate() for content in records_on(wire) for part in get_all_nested_objects(content).values())


def residues(change, examples):
    """Return the integers of an update, as `plain` sends them."""
    return np.rint(change.astype(np.float64) * examples / 2**24 * 2**50).astype(np.int64).tobytes()


@pytest.mark.parametrize("scheme", ["block-dphe", "dphe", "bfv", "masks", "plain"])
def test_no_update_and_no_metric_of_a_training_travels_in_the_clear(tmp_path, scheme):
    rng = np.random.default_rng(0)
    changes = {name: rng.normal(size=30).astype(np.float32) for name in MEMBERS}
    federation = Federation(tmp_path, moving(lambda name, round: changes[name], examples=321, loss=0.123))
    federation.strategy(scheme=scheme, fraction_evaluate=0.0).start(federation.grid, START, num_rounds=1)
    wire = federation.grid.wire
    assert floats_on(wire) == {START["w"].numpy().tobytes()}  # the model that went out, and nothing else
    assert not any(content.metric_records for content in records_on(wire))
    for change in changes.values():
        assert change[:4].tobytes() not in bytes_on(wire)
        assert (residues(change[:4], 321) in bytes_on(wire)) == (scheme == "plain")  # found where nothing hides it


def test_the_max_examples_of_a_run_are_logged_where_they_bind(tmp_path, caplog):
    federation = Federation(tmp_path, moving(ones, examples=500))
    federation.strategy(max_examples=100).start(federation.grid, START, num_rounds=1)
    assert "num-examples count as 100" in caplog.text


def test_a_node_needs_a_key_store_that_others_cannot_read(tmp_path, caplog):
    federation = Federation(tmp_path, moving(ones))
    federation.stores["ann"].path.chmod(0o755)
    reply = asked(federation, 1, pack("hello", [b""]), "train")
    assert "(StorageError)" in response_in(reply.content).error
    assert str(tmp_path) not in response_in(reply.content).error
    assert str(tmp_path) in caplog.text


OWN_THINGS = [
    DataError("/home/ann/tumours.npz has no array 'labels'."),
    InputError("there must be a label per sample; got 17 for 16."),
    StorageError("cannot read /home/ann/tumours.npz."),
    ValueError("could not convert 'Jane Doe' to a number"),
]
THEIR_MESSAGE = [MessageError("the call is forged."), PrivacyError("this user has no budget left.")]


def test_what_goes_wrong_with_a_nodes_own_things_stays_in_its_log(tmp_path, caplog):
    federation = Federation(tmp_path, moving(ones))
    for error in (*OWN_THINGS, *THEIR_MESSAGE):

        def fail(handler, parts, error=error):
            raise error

        federation.grid.nodes[1].app = app_that_does("ours", fail)
        told = response_in(asked(federation, 1, pack("ours", []), "train").content).error
        if error in THEIR_MESSAGE:  # of what is wrong with its message the server is told
            assert told == str(error)
        else:
            assert f"({type(error).__name__})" in told
            assert str(error) not in told
            assert str(error) in caplog.text


def app_that_does(kind, do):
    app = ClientApp()
    app.train()(lambda message, context: answer(message, context, {kind: do}))
    return app


def test_the_server_needs_its_own_key_store(tmp_path):
    federation = Federation(tmp_path, moving(ones))
    with pytest.raises(InputError, match=r"'ann'.*'aggregator'"):
        federation.strategy(home=federation.stores["ann"].path)
