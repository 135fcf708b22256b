"""Real processes over TLS: a user and the key generator are killed in the middle of a round, and one sends garbage."""

import numpy as np
import pytest

from apps.federated.deployment.federation import GENERATOR_NODE
from tests.federated.faults.staging import SECONDS, Stage, contributors, wait_for

pytestmark = pytest.mark.slow
pytest.importorskip("flwr")


def test_no_sum_is_wrong_whoever_is_killed_and_whatever_is_sent(tmp_path):
    stage = Stage.build(tmp_path, ["ann", "bob", "cem", "dan", "eve"])
    training, answering = stage.mark("training"), stage.mark("answering")
    nodes = [
        stage.spoilt(stage.federation.generator_node(), stop_in_first_answer=answering),
        *map(stage.member, ["ann", "cem", "dan"]),
        stage.member("bob", stop_in_first_training=training),
        stage.member("eve", send_garbage=stage.diary("ann")),
    ]
    config = stage.config()
    with stage.federation.loopback(nodes) as network:
        run = network.run(config)
        wait_for(training.exists, "bob's training")
        network.kill("bob")
        network.start("bob")
        wait_for(answering.exists, "the key generator's answer")
        network.kill(GENERATOR_NODE)
        network.start(GENERATOR_NODE)
        assert network.wait(run, SECONDS) == "finished:completed", network.log(run)

    report, rest = stage.report(), {"ann", "cem", "dan"}
    first, second, last = contributors(report)
    assert first == rest
    assert second - {"bob"} == rest  # a node that is back may be a round late
    assert last == rest | {"bob"}
    assert "in time" in report["rounds"][0]["missing"]["bob"]
    for row, words in zip(report["rounds"], ("Blindsight message", "'ann'", "head is damaged"), strict=True):
        assert words in row["missing"]["eve"]
    assert np.array_equal(stage.weights(), stage.replayed(config))
