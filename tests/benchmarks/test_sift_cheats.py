"""Cheating sifts on the benchmark's platform: accepted by the paper's verifier, then found out, blunted or refused."""

import numpy as np
import pytest

from benchmarks.command import main
from benchmarks.harness import Settings
from benchmarks.methods import sifts
from benchmarks.results import Result
from benchmarks.suites import sift_cheats
from benchmarks.suites.sift_cheats import BENCHMARK, CHEATS, verdict
from tests.adversaries.holes import hole
from tests.benchmarks.conftest import tables


@pytest.fixture(scope="module")
def problem():
    task, _ = sift_cheats.tasks(Settings(quick=True))
    return task.pose(0)


def test_it_runs_to_the_end_and_every_cheat_meets_its_fate(tmp_path):
    assert main(["sift-cheats", "--quick", "--only", "*_*", "--output", str(tmp_path)]) == 0
    page = (tmp_path / "tables" / "sift-cheats-quick.md").read_text()
    assert "## Failed" not in page
    before, after = (
        {
            line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]]
            for line in part.splitlines()
            if "|" in line
        }
        for part in page.split("## After")
    )
    for cheat in ("collinear pair", "low digits", "XOR with a hash"):
        decoded, said = float(before[cheat][2]), before[cheat][5]
        assert decoded > 0.3  # a blind guess of 900 deviates by .017
        assert said == "accept"  # by the paper's attackers
    assert before["collinear pair"][-1] == "reject"  # by ours
    assert after["collinear pair"][0] == "1"
    assert [after[cheat][4] for cheat in ("collinear pair", "low digits")] == ["accept", "accept"]
    assert after["XOR with a hash"][-1] == "refused unseen: code, not a sift"
    assert after["XOR with a hash, 16 symbols"][-1] == "refuse"


def test_a_way_around_a_verdict_is_closed():
    jackpot = hole("a jackpot symbol", np.random.default_rng(0), 1000)
    problem = sift_cheats.tasks(Settings(quick=True))[-1].pose(0)
    assert problem.score((jackpot,)) == {
        f"{jackpot.name}/{k}": v for k, v in (("read", 0.5), ("before", 1), ("now", 0))
    }


def test_honest_apps_decode_nothing_and_serve_the_public_attribute(problem):
    given = problem.given
    assert len(given.features) == len(given.public) == len(given.private) == 600  # its own people only
    assert (given.features == np.rint(given.features)).all()
    scores = problem.score(sifts.honest(given, seed=0))
    assert scores["decoded"] == scores["hardened/decoded"] == 0
    assert scores["hardened/serves"] == pytest.approx(scores["serves"], abs=0.03)
    assert scores["serves"] > 0.8
    assert scores["symbols/count"] <= 2**3


def test_what_was_not_measured_is_left_open():
    ends = (-0.02, 0.1), (0.09, 0.12), (0.11, 0.2)
    assert [verdict(*pair) for pair in ends] == ["accept", "inconclusive", "reject"]
    results = [Result("sift-cheats", "faces", "xor_hash", {}, 0, score={"decoded": 0.3, "serves": 0.9})]
    before, after = tables(BENCHMARK, results).values()
    assert after["XOR with a hash"][-1] == "refused unseen: code, not a sift"
    assert after["honest PPLS, K = 5"][-1] == "-"
    assert len(before) == len(CHEATS)
