"""Every registered attack works on its weakness and fails on the repair."""

import pytest

from blindsight.audit.attacks import ATTACKS, Attack, Outcome, as_markdown, attack_named
from blindsight.audit.finding import Finding, rate
from blindsight.errors import UnknownNameError


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


def row(verdict):
    return Finding(
        claim="it holds",
        source="us",
        proven="nothing",
        measure="share",
        measured=rate(5, 10),
        verdict=verdict,
        attack="asking",
    )


def test_outcomes():
    attack = Attack(
        "asking",
        "a mouth",
        "silence",
        ("a talker", "a wall"),
        lambda weak: row("leaks" if weak else "at chance"),
        1.0,
    )
    outcome = attack.run()
    assert outcome.proven
    assert outcome.to_dict()["on the repair"]["verdict"] == "at chance"
    for weak, repaired in (("at chance", "at chance"), ("leaks", "refuted"), ("undecided", "not refuted")):
        assert not Outcome(attack, row(weak), row(repaired), 1.0).proven
    assert "| asking | a mouth | silence | a talker: **leaks**, 0.5 (0.187 to 0.813) |" in as_markdown([outcome])


def test_names_are_their_own():
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS)
    assert attack_named(ATTACKS[0].name) is ATTACKS[0]
    with pytest.raises(UnknownNameError, match="likelyhood"):
        attack_named("likelyhood")
