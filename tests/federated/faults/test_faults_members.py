"""Real processes over TLS: nodes that are not who they say, that trust somebody else, that are late or do not fit."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from blindsight.federated.identity import IDENTITY_FILE, PROTOCOL, Identity
from blindsight.sums.terms import KEY_GENERATOR
from tests.federated.faults.staging import FEATURES, SECONDS, Stage, contributors, samples, wait_for

pytestmark = pytest.mark.slow
pytest.importorskip("flwr")

HONEST = {"ann", "bob", "cem"}


def double(stage, name):
    """Return a node with a copy of a member's key store."""
    home = stage.federation.home(f"{name} again")
    shutil.copytree(stage.federation.home(name), home)
    spec = stage.federation.node(name, home=str(home), data=str(home / "data.npz"))
    return stage.spoilt(replace(spec, name=f"{name}-again"), keep_diary=stage.diary(name))


def test_whoever_does_not_belong_is_left_out_with_a_sentence(tmp_path):
    stage = Stage.build(tmp_path, ["ann", "bob", "cem", "dan", "eve", "gus", "hal"], ivy=samples(9, FEATURES - 3))
    own, go = stage.federation.members.fingerprints, stage.mark("go")
    stranger = Identity.create(tmp_path / "other" / IDENTITY_FILE, "eve").public
    nodes = [
        stage.federation.generator_node(),
        *map(stage.member, ["ann", "bob", "cem", "ivy"]),
        double(stage, "ann"),
        stage.member("dan", dawdle=go),
        stage.member("eve", config={"home": str(tmp_path / "other")}),
        stage.member("gus", config={"key-generator": own["hal"]}),
        stage.member("hal", speak_protocol=PROTOCOL + 1),
    ]
    config = stage.config(members=6, round_seconds=30.0)
    with stage.federation.loopback(nodes) as network:
        run = network.run(config)
        wait_for(lambda: stage.round_is_kept, "the first round")
        go.touch()
        assert network.wait(run, SECONDS) == "finished:completed", network.log(run)
        log = network.log(run)

    told = [
        "two nodes say they are 'ann'",
        "gus does not take part",
        f"protocol {PROTOCOL} ",
        f"protocol {PROTOCOL + 1} ",
    ]
    for words in (stranger.fingerprint, own["eve"], own[KEY_GENERATOR], own["hal"], *told):
        assert words in log
    report = stage.report()
    assert report["members"] == ["ann", "bob", "cem", "dan", "ivy"]
    assert all("20 columns; got 17" in row["missing"]["ivy"] for row in report["rounds"])
    assert contributors(report) == [HONEST, {*HONEST, "dan"}, {*HONEST, "dan"}]
    assert "in time" in report["rounds"][0]["missing"]["dan"]
    assert np.array_equal(stage.weights(), stage.replayed(config))
