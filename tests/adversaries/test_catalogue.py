"""Every registered attack works on its weakness and fails on the repair, and the documentation says so."""

from pathlib import Path

import pytest

from tests.adversaries.catalogue import ATTACKS, Attack, Outcome, as_markdown, differences
from tests.adversaries.holes import Hole
from tests.adversaries.hostile import Read

PAGE = Path("docs/audit.md").read_text(encoding="utf-8")
LEAKS, HELD, UNPLAYED = Read(0.5), Read(0), Read(0, most=1, least=1)


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param(attack, id=attack.name, marks=[pytest.mark.slow] if attack.seconds > 0.3 else [])
        for attack in ATTACKS
    ],
)
def test_attack(attack):
    if attack.name.startswith(("gradient matching", "fishing for photos", "photos in rounded steps")):
        pytest.importorskip("torch")
    outcome = attack.run()
    assert outcome.proven, (outcome.weak, outcome.repaired)


def test_outcomes():
    attack = Attack("asking", "a mouth", "silence", ("a talker", "a wall"), lambda weak: LEAKS if weak else HELD, 1.0)
    outcome = attack.run()
    assert outcome.proven
    for weak, repaired in ((HELD, HELD), (LEAKS, LEAKS), (UNPLAYED, HELD)):
        assert not Outcome(attack, weak, repaired, 1.0).proven
    assert "| asking | a mouth | silence | a talker: **refuted**, 0.5 | a wall: **not refuted**, 0 |" in as_markdown(
        [outcome]
    )


def test_names_are_their_own():
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS)


def test_the_table_in_the_documentation_is_that_of_the_attacks():
    """Figures and times aside; `make adversaries` writes it."""
    assert differences(PAGE) == []
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| {ATTACKS[0].name} |"))
    for wrong in (
        row.replace("**refuted**", "**not refuted**"),
        row.replace("half", "a third"),
        row + "\n| made up |",
        "",
    ):
        assert len(differences(PAGE.replace(f"{row}\n", f"{wrong}\n" if wrong else ""))) == 1


def test_a_way_around_a_verdict_by_which_nothing_is_read_shows_nothing():
    verdicts = [
        Hole("it", "a rule", read, True, now).finding().verdict for read in (0.05, 0.5) for now in (False, True)
    ]
    assert verdicts == ["undecided", "undecided", "not refuted", "refuted"]
