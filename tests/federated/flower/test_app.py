"""The Flower app itself over a grid in one process: every task from settings to report, and what the server is told."""

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from apps.federated.deployment.federation import LocalFederation
from blindsight.errors import InputError, PrivacyError, UnknownNameError
from blindsight.federated.commands import APP
from blindsight.federated.flower.app.blindsight_federated import client_app, server_app
from blindsight.federated.flower.app.blindsight_federated.settings import Settings, read_pair
from blindsight.federated.flower.mod import node_of
from blindsight.learn import FederatedClassifier
from blindsight.learn.clustering import ClusterModel
from blindsight.learn.model import LinearModel
from blindsight.rounds import Run
from tests.federated.flower.localgrid import LocalGrid, LocalNode
from tests.federated.parties import make_store

DEFAULTS = tomllib.loads((APP / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
QUICK = {"key-bits": 1024, "wait-seconds": 0.1, "round-seconds": 0.1, "step-seconds": 0.1, "key-generator-seconds": 0.1}
MEMBERS = ("ann", "bob", "cem", "dan")


def samples(rng, count):
    labels = rng.integers(0, 3, count)
    return rng.normal(size=(count, 12)) + 3 * np.eye(12)[labels], labels


class App:
    """The app in a folder, with the nodes of all members and of the key generator."""

    def __init__(self, folder):
        rng = np.random.default_rng(5)
        shares = {name: samples(rng, 96) for name in MEMBERS}
        self.federation = LocalFederation.prepare(folder, shares, samples(rng, 30), samples(rng, 200), insecure=True)
        specs = [self.federation.generator_node(), *map(self.federation.node, MEMBERS)]
        self.nodes = {place: LocalNode(client_app.app, dict(spec.node_config)) for place, spec in enumerate(specs)}

    def run(self, **settings):
        config = {**DEFAULTS, **QUICK, **self.federation.run_config(**settings)}
        grid = LocalGrid(self.nodes, config)
        server_app.app(grid, Context(1, 0, {}, RecordDict(), config))
        return json.loads((self.federation.out / "report.json").read_text())


def interrupted(*arguments):
    raise KeyboardInterrupt


@pytest.fixture
def app(tmp_path):
    return App(tmp_path)


@pytest.mark.parametrize("scheme", ["block-dphe", "masks"])
def test_a_classifier_is_learned_and_kept(app, scheme):
    report = app.run(scheme=scheme, rounds=2, sparsity=0.5)
    assert [row["contributors"] for row in report["rounds"]] == [list(MEMBERS)] * 2
    assert report["rounds"][-1]["score"] > report["first score"]
    short_key = scheme == "block-dphe"  # of 1024 bits, which the statement does not trust
    assert report["statement"]["guarantee"] == ("none" if short_key else "cryptographic")
    features, labels = samples(np.random.default_rng(9), 100)
    assert LinearModel.load(app.federation.out / "model.npz").quality(features, labels) > 0.7


def test_the_model_is_that_of_the_estimator_in_one_process(app):
    report = app.run(rounds=3, ridge=0.1)
    pairs = [app.federation.home(name) / "data.npz" for name in MEMBERS]
    members = {name: read_pair(str(path), "data") for name, path in zip(MEMBERS, pairs, strict=True)}
    public = read_pair(str(app.federation.run_config()["public"]), "public")
    local = FederatedClassifier(rounds=3, ridge=0.1).fit(members, public=public)
    assert np.array_equal(LinearModel.load(app.federation.out / "model.npz").weights, local.model_.weights)
    assert report["statement"]["mechanism"] == local.statement_.mechanism


def test_a_run_proves_the_epsilon_that_was_asked_for(app):
    privacy = {"privacy_epsilon": 8.0, "privacy_delta": 1e-3, "privacy_unit": "record", "member_records": 96}
    report = app.run(rounds=2, **privacy)
    statement = report["statement"]
    assert (statement["guarantee"], statement["unit"]) == ("differential privacy", "record")
    assert statement["epsilon"] == pytest.approx(8.0, rel=1e-3)
    assert all(row["contributors"] == list(MEMBERS) for row in report["rounds"])
    LinearModel.load(app.federation.out / "model.npz")
    with pytest.raises(InputError, match="other settings"):  # further rounds would be further releases
        app.run(rounds=3, **privacy)
    app.nodes[1].config["privacy-epsilon"] = 1.0
    rows = app.run(rounds=1, label="strict", **privacy)["rounds"]
    assert "at most 1" in rows[0]["missing"]["ann"]
    for wrong, words in (
        ({"privacy_epsilon": 0.0}, "privacy-epsilon"),
        ({"privacy_unit": "owner"}, "'owner'"),
        ({"privacy_delta": 0.0}, "delta"),
        ({"task": "k-means"}, "privacy-epsilon"),
        ({"share": 0.5}, "share"),
        ({"member_records": -1}, "member-records"),
    ):
        with pytest.raises(InputError, match=words):
            app.run(rounds=1, label="wrong", **privacy | wrong)


def test_clusters_are_found_and_kept(app):
    report = app.run(task="k-means", clusters=3, rounds=3, share=1.0, scheme="bfv")
    assert report["rounds"][-1]["score"] > 0.3
    assert ClusterModel.load(app.federation.out / "model.npz").centroids.shape == (3, 12)


def test_a_run_asked_for_again_goes_on(app):
    first = app.run(rounds=1)
    longer = app.run(rounds=3)
    assert longer["rounds"][0] == first["rounds"][0]
    assert len(longer["rounds"]) == 3
    with pytest.raises(InputError, match="other settings"):
        app.run(rounds=4, share=0.5)
    assert len(app.run(rounds=1, label="another")["rounds"]) == 1


def test_a_run_goes_on_with_its_own_seed_and_public_data_alone_also_before_its_first_round(app, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(Run, "play", interrupted)
        with pytest.raises(KeyboardInterrupt):
            app.run(rounds=1, scheme="bfv")
    with pytest.raises(InputError, match="seed 0; got 1"):
        app.run(rounds=1, scheme="bfv", seed=1)
    public = Path(str(app.federation.run_config()["public"]))
    kept = public.read_bytes()
    features, labels = samples(np.random.default_rng(6), 30)
    np.savez(public, features=features, labels=labels)
    with pytest.raises(InputError, match="other settings"):
        app.run(rounds=1, scheme="bfv")
    public.write_bytes(kept)
    assert len(app.run(rounds=1, scheme="bfv")["rounds"]) == 1


def test_selective_sharing_is_refused_with_what_to_use_instead(app):
    with pytest.raises(InputError, match=r"'sharing'.*'classifier'.*learn network"):
        app.run(task="sharing")
    assert not list(app.federation.folder.glob("homes/*/runs"))


def test_too_few_users_and_unknown_tasks_end_with_a_sentence(app):
    with pytest.raises(UnknownNameError, match="'clasifier'"):
        app.run(task="clasifier")
    app.nodes.pop(0)
    with pytest.raises(PrivacyError, match="key generator"):
        app.run()
    with pytest.raises(InputError, match="'rounds'"):
        app.run(rounds="three")


def data_of_dan(app, **arrays):
    path = app.federation.home("dan") / "data.npz"
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize("task", ["classifier", "k-means"])
def test_the_server_is_told_of_other_dimensions(tmp_path, task):
    app = App(tmp_path)
    data_of_dan(app, features=np.zeros((40, 5)), labels=np.zeros(40, dtype=np.int64))
    report = app.run(task=task, clusters=3, rounds=1, scheme="bfv")
    assert list(report["rounds"][0]["missing"]) == ["dan"]
    assert "12 columns; got 5" in report["rounds"][0]["missing"]["dan"]


def lie_to(node, run_config):
    """Let the SuperLink tell a node another run config."""

    def told(message, context):
        context.run_config |= run_config
        return client_app.app(message, context)

    node.app = told


@pytest.mark.parametrize("task", ["classifier", "k-means"])
def test_a_run_config_that_the_superlink_changes_at_some_nodes_changes_no_update(app, task):
    """Of the run config this app reads on nodes alone how to read the data: it fails, or does the same."""
    settings = {"task": task, "clusters": 3, "rounds": 1, "scheme": "bfv"}
    kept = []
    for lie in ({}, {"passes": 7, "rounds": 0, "task": "another" if task == "classifier" else task}):
        lie_to(app.nodes[2], lie)
        app.run(**settings, label=f"run {len(kept)}")
        kept.append((app.federation.out / "model.npz").read_bytes())
    assert kept[0] == kept[1]
    lie_to(app.nodes[2], {"task": "k-means" if task == "classifier" else "classifier"})
    refused = app.run(**settings, label="another")["rounds"][0]["missing"]
    assert list(refused) == ["bob"]


def test_the_server_is_not_told_where_data_are_or_how_many(tmp_path, caplog):
    app = App(tmp_path)
    path = data_of_dan(app, features=np.zeros((40, 12)), labels=np.zeros(39, dtype=np.int64))
    refused = app.run(rounds=1, scheme="bfv")["rounds"][0]["missing"]
    assert "(InputError)" in refused["dan"]
    assert not any(word in refused["dan"] for word in ("39", "40", "data.npz"))
    assert "(39,) for 40" in caplog.text
    path.unlink()
    refused = app.run(rounds=2, scheme="bfv")["rounds"][1]["missing"]
    assert "(StorageError)" in refused["dan"]
    assert str(path) not in refused["dan"]


def test_the_server_uses_no_key_store_but_its_own(tmp_path):
    app = App(tmp_path)
    given = app.federation.run_config()
    store, members = Settings(given).store()
    assert store.identity.name == "aggregator"
    assert "ann" in members.names
    for old, new in (("users", "members"), ("minimum-users", "quorum")):
        with pytest.raises(InputError, match=f"'{old}'.*'{new}'"):
            Settings({**given, old: 3})
    with pytest.raises(InputError, match=r"'ann'.*'aggregator'"):
        Settings({**given, "home": str(app.federation.home("ann"))}).store()
    other = tmp_path / "members.toml"
    other.write_text(Path(given["members-file"]).read_text().replace('"aggregator"', '"somebody"'))
    with pytest.raises(PrivacyError, match="'aggregator'"):
        Settings({**given, "members-file": str(other)}).store()


PIN = "SHA256:" + "A" * 43


def test_a_node_can_insist_on_a_minimum_per_position(tmp_path):
    config = {"home": str(make_store(tmp_path, "ann").path), "key-generator": PIN}
    assert node_of(config).minimum_per_position == 1
    assert node_of({**config, "minimum-per-position": 3}).minimum_per_position == 3
    for wrong in (0, "3", 1.5):
        with pytest.raises(InputError, match="minimum-per-position"):
            node_of({**config, "minimum-per-position": wrong})
