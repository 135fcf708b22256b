"""Audits in tests have all the time that their checks are estimated to take, however slow or busy the machine is."""

import pytest

from blindsight.audit import checks, subject
from tests.papers.conftest import digits  # noqa: F401


@pytest.fixture(autouse=True)
def _time_stands_still(monkeypatch):
    for module in (checks, subject):
        monkeypatch.setattr(module, "perf_counter", lambda: 0.0)
