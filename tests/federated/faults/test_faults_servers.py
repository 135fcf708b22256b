"""Real processes over TLS: the SuperLink and the server are killed in the middle of a run, and clocks are wrong."""

import numpy as np
import pytest

from blindsight.errors import ServiceError
from tests.federated.faults.staging import SECONDS, Stage, contributors, wait_for

pytestmark = pytest.mark.slow
pytest.importorskip("flwr")

USERS = ["ann", "bob", "cem", "dan"]


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    return Stage.build(tmp_path_factory.mktemp("servers"), USERS)


@pytest.fixture(scope="module")
def network(stage):
    """All users are there but dan; bob's clock is 250 seconds behind."""
    nodes = [stage.federation.generator_node(), *map(stage.user, ["ann", "cem", "dan"]), stage.user("bob", skew=-250.0)]
    with stage.federation.loopback(nodes) as network:
        network.stop("dan")
        yield network


def test_a_node_whose_clock_is_fast_is_refused_by_flower(stage, network):
    fast = network.supernode(stage.user("dan", skew=60.0))
    fast.start()
    try:
        with pytest.raises(ServiceError, match="stopped before it was ready") as refusal:
            fast.wait_until(lambda: "SuperNode ID" in fast.output(), timeout=SECONDS)
    finally:
        fast.stop()
    print(refusal.value)


def test_a_run_without_enough_users_says_who_is_there(stage, network):
    run = network.run(stage.config(label="too few", wait_seconds=1.0))
    assert network.wait(run, SECONDS) == "finished:failed"
    assert "PrivacyError: 3 of 4 users are there after 1 seconds." in network.log(run)


def test_a_run_outlives_the_superlink_and_the_server(stage, network):
    network.start("dan")
    config = stage.config(label="kills", scheme="bfv", sparsity=0.0)
    first = network.run(config)
    wait_for((stage.diary("ann") / "1").exists, "ann's first contribution")
    network.kill_superlink()
    network.restart_superlink()
    wait_for((stage.diary("ann") / "2").exists, "ann's second contribution")
    network.kill_aggregator()
    network.restart_aggregator()
    second = network.run(config)
    assert network.wait(second, SECONDS) == "finished:completed", network.log(second)
    assert "The run 'kills' goes on after attempt" in network.log(second)
    print(network.status(first), stage.report())

    report = stage.report()
    assert len(report["rounds"]) == 3 and all(len(names) >= 3 for names in contributors(report))
    assert any("bob" in names for names in contributors(report))
    assert np.array_equal(stage.weights(), stage.replayed(config))
