"""A missing extra is one clear sentence; a broken library is not mistaken for a missing one."""

import sys

import pytest

from blindsight.errors import MissingExtraError
from blindsight.extras import require


def test_missing_library_names_the_extra():
    with pytest.raises(MissingExtraError) as caught:
        require("no_such_library.part", extra="deep", purpose="the embedding")
    assert str(caught.value) == (
        "the embedding needs no_such_library, which is not installed. Run: pip install 'blindsight-vision[deep]'"
    )


def test_library_switched_off_in_this_process_counts_as_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"needs torch.*blindsight-vision\[deep\]"):
        require("torch", extra="deep", purpose="a network")


def test_library_whose_own_import_is_broken_is_reported_as_it_is(tmp_path, monkeypatch):
    (tmp_path / "half_installed.py").write_text("import something_it_needs_but_lacks")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="something_it_needs") as caught:
        require("half_installed", extra="he", purpose="BFV")
    assert not isinstance(caught.value, MissingExtraError)
