"""A party of another version is refused by its name and version; what another version kept is not called damaged."""

from contextlib import nullcontext
from unittest.mock import patch

import numpy as np
import pytest

from blindsight.crypto.wire import Message, decode, encode
from blindsight.errors import MessageError, PrivacyError, VersionError
from blindsight.federated.identity import PROTOCOL, answer_hello
from blindsight.federated.server import RunStore
from tests.federated.flower.federation import GENERATOR, MEMBERS, Federation, model, moving
from tests.federated.parties import Parties, make_store

START = model(w=np.zeros(30, np.float32))
OTHER = PROTOCOL + 90


def speaking(protocol):
    return lambda: patch("blindsight.federated.identity.PROTOCOL", protocol)


def ones(name, round):
    return np.ones(30, np.float32)


@pytest.mark.parametrize("scheme", ["masks", "bfv"])
def test_a_node_that_is_of_another_version_for_a_round_is_missing_from_that_round(tmp_path, scheme):
    federation = Federation(tmp_path, moving(ones))

    def after(round, arrays):
        federation.node("bob").around = speaking(OTHER) if round == 1 else nullcontext

    strategy = federation.strategy(scheme=scheme, fraction_evaluate=0.0)
    strategy.start(federation.grid, START, num_rounds=3, evaluate_fn=after)
    others = tuple(name for name in MEMBERS if name != "bob")
    assert [report.contributors for report in strategy.reports] == [MEMBERS, others, MEMBERS]
    said = strategy.reports[1].missing["bob"]
    assert f"protocol {PROTOCOL} " in said
    assert f"protocol {OTHER} " in said


def test_a_run_does_not_begin_with_a_key_generator_of_another_version(tmp_path):
    federation = Federation(tmp_path, moving(ones))
    federation.grid.nodes[GENERATOR].around = speaking(OTHER)
    with pytest.raises(PrivacyError, match=rf"'key generator' is of another version.*protocol {OTHER} "):
        federation.strategy().start(federation.grid, START, num_rounds=1)


def test_a_hello_of_every_version_gets_an_answer_that_names_both(tmp_path):
    """The hello keeps its name and fields for ever, so that all versions can refuse each other."""

    class Hello(Message, name="federated/hello"):
        protocol: int
        software: str
        challenge: bytes
        node: int

    identity = make_store(tmp_path, "ann").identity
    for protocol, software in ((6, "0.1.0"), (OTHER, "9.9")):
        with pytest.raises(VersionError, match=rf"'ann'.*protocol {protocol} \(blindsight {software}\).*{PROTOCOL} "):
            answer_hello(identity, "member", (encode(Hello(protocol, software, bytes(32), 1)),), 1)


def test_what_another_version_kept_is_not_read_and_not_called_damaged(tmp_path):
    parties = Parties(tmp_path)
    server = parties.open("plain")
    parties.draw(1)
    server.play(1)
    run = server.terms.run

    class OlderJoined(Message, name="federated/joined.1"):
        terms: bytes

    class OlderRun(Message, name="federated/run.1"):
        terms: bytes

    (parties.stores["ann"].folder(run) / "joined").write_bytes(encode(OlderJoined(b"")))
    with pytest.raises(VersionError, match=r"joined.*another version"):
        parties.handlers["ann"]("contribute", server.begin(2)["ann"])
    (server.run.folder / "run").write_bytes(encode(OlderRun(b"")))
    with pytest.raises(VersionError, match=r"run.*another version"):
        RunStore.load(parties.stores["aggregator"], server.run.folder)


def test_another_number_after_the_same_name_is_another_version_and_another_name_is_not():
    class Old(Message, name="tests/thing.1"):
        value: int

    class New(Message, name="tests/thing.2"):
        value: int

    class Other(Message, name="tests/other.2"):
        value: int

    assert decode(encode(Old(1)), New, Old) == Old(1)
    with pytest.raises(VersionError, match=r"tests/thing\.1.*tests/thing\.2"):
        decode(encode(Old(1)), New)
    with pytest.raises(MessageError) as refused:
        decode(encode(Other(1)), New)
    assert not isinstance(refused.value, VersionError)
