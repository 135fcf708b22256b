"""The demo runs end to end on few pictures and its report says what was found."""

import json
from pathlib import Path

import pytest

from blindsight.cli import run


def test_demo_writes_its_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--pictures", "600", "--out", str(tmp_path / "out"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    page = Path(found["report"]).read_text()
    for chapter in (
        "The pictures",
        "What raw features give away",
        "A census that protects people",
        "Searching without showing",
        "Showing one thing",
    ):
        assert chapter in page
    assert found["pictures"] == 600
    assert found["statement"]["unit"] == "person"
    assert found["statement"]["epsilon"] == 1.0
    assert found["statement"]["status"] == "proven"
    assert found["balanced_accuracy"]["outdoors"] > 0.6  # readable even from few pictures
