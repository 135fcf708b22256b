"""A missing extra is one clear sentence; a broken library is not mistaken for a missing one."""

import sys

import pytest

from blindsight.errors import MissingExtraError
from blindsight.extras import require


def test_missing_library_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)  # switched off in this process: counts as missing
    for library in ("no_such_library.part", "torch"):
        with pytest.raises(MissingExtraError, match=rf"the embedding.*{library.split('.')[0]}.*\.\[deep\]"):
            require(library, extra="deep", purpose="the embedding")


def test_library_whose_own_import_is_broken_is_reported_as_it_is(tmp_path, monkeypatch):
    (tmp_path / "half_installed.py").write_text("import something_it_needs_but_lacks")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="something_it_needs") as caught:
        require("half_installed", extra="he", purpose="BFV")
    assert not isinstance(caught.value, MissingExtraError)
