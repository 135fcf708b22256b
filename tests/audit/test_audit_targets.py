"""Every path that is no artefact, or one of another version, gets one sentence that says what to do."""

import json
from pathlib import Path

import numpy as np
import pytest

from blindsight.audit.artefacts import audit_artefact
from blindsight.audit.targets import Target, recognise
from blindsight.errors import CorruptFileError, InputError
from blindsight.files import write_arrays
from blindsight.search.building import Wish, build_gallery
from blindsight.search.origin import Source

RUN = {
    "schema": "blindsight/run",
    "version": 1,
    "data": "digits",
    "path": None,
    "count": 300,
    "seed": 0,
    "features": "pixels",
    "components": 10,
    "attributes": "",
    "owners": 3,
    "sharing": None,
}


def written(folder: Path, name: str, content: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(content)
    return folder


def audited(path: Path):
    return audit_artefact(path, minutes=0.1, random_state=0)


def test_what_is_not_there_or_no_artefact(tmp_path):
    with pytest.raises(InputError, match="nowhere is not there"):
        audited(tmp_path / "nowhere")
    with pytest.raises(InputError, match="holds nothing that can be audited"):
        audited(written(tmp_path / "empty", "notes.txt", "hello"))
    with pytest.raises(InputError, match=r"notes.txt is a file, and no sift"):
        audited(tmp_path / "empty" / "notes.txt")
    with pytest.raises(InputError, match=r"a model without run.json.*of clusters"):
        audited(written(tmp_path / "clusters", "model.npz", ""))


def test_two_artefacts_in_one_folder(tmp_path):
    folder = written(tmp_path / "both", "run.json", json.dumps(RUN))
    written(folder, "gallery.json", "{}")
    with pytest.raises(InputError, match="more than one thing: run, index"):
        recognise(folder)


def test_artefacts_are_recognised(tmp_path):
    run = written(tmp_path / "run", "run.json", json.dumps(RUN))
    assert recognise(run) == Target("run", run)
    index = written(tmp_path / "index", "gallery.json", "{}")
    assert recognise(index) == Target("index", index)
    sift = written(tmp_path / "sift", "sift.npz", "")
    assert recognise(sift) == Target("sift", sift)
    with pytest.raises(InputError, match="is a file"):  # whose pictures are not known
        recognise(sift / "sift.npz")
    written(sift, "origin.npz", "")
    assert recognise(sift / "sift.npz") == Target("sift", sift, sift / "sift.npz")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (json.dumps(RUN | {"version": 2}), "of version 2; this Blindsight reads version 1. Learn again"),
        (json.dumps(RUN | {"schema": "other"}), "holds a 'other'; a 'blindsight/run' was expected"),
        (json.dumps({name: RUN[name] for name in RUN if name != "seed"}), "does not say seed"),
        ("{", "is damaged, or was never written by Blindsight"),
        ("[]", "is damaged, or was never written by Blindsight"),
    ],
)
def test_runs_of_other_versions(tmp_path, content, sentence):
    with pytest.raises(CorruptFileError, match=sentence):
        audited(written(tmp_path / "run", "run.json", content))


def test_indexes_and_sifts_of_other_versions(tmp_path):
    folder = tmp_path / "index"
    build_gallery(Source("digits", count=60), Wish("open", None, 1e-6, 8), folder)
    about = json.loads((folder / "gallery.json").read_text())
    written(folder, "gallery.json", json.dumps(about | {"format": 2}))
    with pytest.raises(CorruptFileError, match=r"gallery.json is damaged or of another version"):
        audited(folder)
    sift = tmp_path / "sift"
    write_arrays(sift / "origin.npz", "blindsight/sift-origin.2", {}, {"seen": np.zeros((1, 16), np.uint8)})
    written(sift, "sift.npz", "")
    with pytest.raises(CorruptFileError, match=r"holds a 'blindsight/sift-origin.2'"):
        audited(sift)


def test_bad_budgets_and_seeds(tmp_path):
    folder = tmp_path / "index"
    build_gallery(Source("digits", count=60), Wish("open", None, 1e-6, 8), folder)
    with pytest.raises(InputError, match="time budget must be positive"):
        audit_artefact(folder, minutes=0, random_state=0)
    with pytest.raises(InputError, match="seed must be a whole number"):
        audit_artefact(folder, minutes=1, random_state=-1)
