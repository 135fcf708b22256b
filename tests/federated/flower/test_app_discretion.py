"""What the server of the app learns of a user's trouble with its own data, and whose home the server takes."""

from pathlib import Path

import numpy as np
import pytest

from apps.federated.blindsight_federated.settings import Settings
from blindsight.errors import InputError, PrivacyError
from tests.federated.flower.test_app import App


def data_of_dan(app, **arrays):
    path = app.federation.home("dan") / "data.npz"
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize("task", ["classifier", "k-means"])
def test_the_server_is_told_of_other_dimensions(tmp_path, task):
    app = App(tmp_path)
    data_of_dan(app, features=np.zeros((40, 5)), labels=np.zeros(40, dtype=np.int64))
    report = app.run(task=task, clusters=3, rounds=1, scheme="bfv", sparsity=0.0)
    assert report["rounds"][0]["refused"] == {"dan": "features must have 12 columns; got 5."}


def test_the_server_is_not_told_where_data_are_or_how_many(tmp_path, caplog):
    app = App(tmp_path)
    path = data_of_dan(app, features=np.zeros((40, 12)), labels=np.zeros(39, dtype=np.int64))
    refused = app.run(rounds=1, scheme="bfv")["rounds"][0]["refused"]
    assert refused == {"dan": "it failed on its side (InputError); the node's log says more."}
    assert "contribute failed: there must be a label per sample; got labels of shape (39,) for 40." in caplog.text
    path.unlink()
    refused = app.run(rounds=2, scheme="bfv")["rounds"][1]["refused"]
    assert refused == {"dan": "it failed on its side (StorageError); the node's log says more."}


def test_the_server_uses_no_home_but_its_own(tmp_path):
    app = App(tmp_path)
    given = app.federation.run_config()
    home, members = Settings(given).home()
    assert home.identity.name == "aggregator"
    assert "ann" in members.users
    with pytest.raises(InputError, match=r"'ann'.*'aggregator'"):
        Settings({**given, "home": str(app.federation.home("ann"))}).home()
    other = tmp_path / "members.toml"
    other.write_text(Path(given["members"]).read_text().replace('"aggregator"', '"somebody"'))
    with pytest.raises(PrivacyError, match="'aggregator'"):
        Settings({**given, "members": str(other)}).home()
