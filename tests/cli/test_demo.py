"""The demo runs end to end on few pictures, and its report has every chapter."""

from pathlib import Path

from blindsight import demo
from blindsight.audit import run_audit
from blindsight.demo import DemoSize


def test_demo_writes_its_report(tmp_path, blindsight, monkeypatch):
    small = DemoSize(rounds=2, key_bits=2048, queries=40, searched=(4.0,), effort=0.05, photos=300)
    monkeypatch.setattr(demo, "FULL", small)
    monkeypatch.setattr(run_audit, "_PROBES", 12)
    found = blindsight("demo", "--pictures", 600, "--out", tmp_path / "out", "--json").document
    page = Path(found["report"]).read_text()
    for chapter in (
        *(
            "In short",
            "The pictures",
            "What raw features give away",
            "A census that protects people",
            "Learning together, unseen",
        ),
        *("Searching without showing", "Showing one thing and hiding another"),
        "Attacked by ourselves",
    ):
        assert f"</span> {chapter}</h2>" in page
    assert found["pictures"] == 600
    assert (tmp_path / "out" / "pictures.jpg").read_bytes().startswith(b"\xff\xd8")
    statement = found["statement"]
    assert (statement["unit"], statement["epsilon"], statement["status"]) == ("person", 1.0, "proven")
    assert found["balanced_accuracy"]["outdoors"] > 0.6  # readable even from few pictures
    assert found["learned"]["rounds"][-1] > found["learned"]["public"]
    assert {"codebook", "central"} <= {row["method"] for row in found["searched"]}
    view = "block-dphe: the aggregator of this run learned nothing of an owner's update but the sum"
    assert found["audited"][view] == "at chance"
    assert "refuted" not in found["audited"].values()
