"""Real processes over TLS: the SuperLink and the server are killed in the middle of a run, and clocks are wrong."""

import numpy as np
import pytest

from blindsight.errors import ServiceError
from tests.federated.faults.staging import SECONDS, Stage, contributors, wait_for

pytestmark = pytest.mark.slow
pytest.importorskip("flwr")

MEMBERS = {"ann", "bob", "cem", "dan"}


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    return Stage.build(tmp_path_factory.mktemp("servers"), sorted(MEMBERS))


@pytest.fixture(scope="module")
def network(stage):
    """The clock of bob's node is 250 seconds behind."""
    nodes = [
        stage.federation.generator_node(),
        stage.member("bob", skew=-250.0),
        *map(stage.member, ["ann", "cem", "dan"]),
    ]
    with stage.federation.loopback(nodes) as network:
        yield network


def test_a_node_whose_clock_is_fast_is_refused_by_flower(stage, network):
    network.stop("dan")
    fast = network.supernode(stage.member("dan", skew=60.0))
    fast.start()
    try:
        with pytest.raises(ServiceError, match="dan"):
            fast.wait_until(lambda: "SuperNode ID" in fast.output(), timeout=SECONDS)
    finally:
        fast.stop()
    refusals = (network.folder / "logs" / "superlink.log").read_text().splitlines()
    assert any("activate-node" in line and line.endswith("401") for line in refusals)
    network.start("dan")


def test_a_run_without_enough_members_says_how_many_are_there(stage, network):
    run = network.run(stage.config(label="too few", members=5, wait_seconds=1.0))
    assert network.wait(run, SECONDS) == "finished:failed"
    assert "PrivacyError: 4 of 5 members are there after 1 seconds." in network.log(run)


def test_a_run_outlives_the_superlink_and_the_server(stage, network):
    config = stage.config(label="kills", scheme="bfv")
    run = network.run(config)
    wait_for((stage.diary("ann") / "1").exists, "ann's first contribution")
    network.kill_superlink()
    network.restart_superlink()
    wait_for((stage.diary("ann") / "2").exists, "ann's second contribution")
    network.kill_aggregator()
    network.restart_aggregator()
    resumed = network.run(config)
    assert network.wait(resumed, SECONDS) == "finished:completed", network.log(resumed)
    log = network.log(resumed)
    assert "The run 'kills' goes on in round" in log
    assert "Round 1:" not in log
    assert network.status(run) != "finished:completed"

    report = stage.report()
    assert [row["round"] for row in report["rounds"]] == [1, 2, 3]
    assert contributors(report)[-1] == MEMBERS
    assert np.array_equal(stage.weights(), stage.replayed(config))
