"""A statement says what is proven, refuses to contradict itself, and reads the same as text, page and data."""

import copy
import json
import math
import pickle
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight.errors import InputError
from blindsight.rng import seeded_bytes, system_bytes
from blindsight.statement import Claim, Line, PrivacyStatement, find_line, line_id, randomness_of, rounded_up

PROVEN = PrivacyStatement(
    guarantee="differential privacy",
    mechanism="discrete Gaussian noise",
    unit="person",
    epsilon=1.0,
    delta=1e-6,
    neighbours="add/remove",
    accountant="PLD",
    randomness="operating system",
    who_sees={"server": "noisy sums", "owner": "everything"},
    assumptions=("clipping bounds every person's part",),
    not_protected=("that a person takes part",),
)
FAILS = Claim("Theorem 4", "epsilon = 1 per bit", "a record has 48 bits")
NOTHING = replace(
    PROVEN, guarantee="none", epsilon=math.inf, delta=None, unit="record", accountant=None, neighbours=None, claim=FAILS
)
SECRET = replace(
    PROVEN, guarantee="cryptographic", mechanism="Paillier, 3072 bits", unit=None, epsilon=None, delta=None
)
SEEN = replace(
    PROVEN, guarantee="measured", unit=None, epsilon=None, delta=None, evidence="nine attackers guess at most 58% right"
)


# --- what it says ---


@pytest.mark.parametrize(
    ("statement", "line"),
    [
        (PROVEN, "Proven: epsilon = 1.00 (delta = 1e-06) per person"),
        (replace(PROVEN, delta=0.0, unit="bit", epsilon=0.5401), "Proven: epsilon = 0.541 per bit"),
        (
            replace(PROVEN, claim=FAILS),
            "Proven: epsilon = 1.00 (delta = 1e-06) per person",
        ),
        (NOTHING, "Nothing is proven per record"),
        (replace(NOTHING, unit=None, claim=None), "Nothing is proven"),
        (SECRET, "Proven, under assumptions: Paillier, 3072 bits"),
        (replace(SECRET, summary="only sums are opened"), "Proven, under assumptions: only sums are opened"),
        (SEEN, "Measured, not proven: nine attackers guess at most 58% right"),
        (
            replace(PROVEN, randomness="injected"),
            "Void, made with repeatable randomness (otherwise: Proven: epsilon = 1.00 (delta = 1e-06) per person)",
        ),
    ],
)
def test_headlines(statement, line):
    assert statement.headline() == line


def test_status():
    assert [s.status for s in (PROVEN, SECRET, SEEN, NOTHING)] == ["proven", "proven", "measured", "unproven"]
    for statement in (PROVEN, SECRET, SEEN, NOTHING):
        voided = replace(statement, randomness="injected")
        assert (voided.void, voided.status) == (True, "void")
        assert "no guarantee holds" in voided.to_text()
        boast = voided.to_dict() | {"headline": "Perfectly safe", "status": "proven"}
        assert PrivacyStatement.from_dict(boast).status == "void"
    assert randomness_of(system_bytes) == "operating system"
    for source in (seeded_bytes(1), lambda count: bytes(count)):
        assert randomness_of(source) == "injected"


@settings(max_examples=60)
@given(st.floats(0.0, 1e300, exclude_min=True))
def test_printed_bounds_never_promise_more_than_is_proven(value):
    printed = rounded_up(value).replace(",", "")
    assert float(printed) >= value
    assert float(printed) <= value * 1.011 or float(printed) == pytest.approx(value, abs=0.01)


# --- what it refuses ---


@pytest.mark.parametrize(
    ("base", "wrong", "named"),
    [
        (PROVEN, {"unit": None}, "unit"),
        (PROVEN, {"delta": None}, "delta"),
        (PROVEN, {"neighbours": None, "accountant": None}, "neighbours and accountant"),
        (PROVEN, {"epsilon": None}, "guarantee"),
        (PROVEN, {"epsilon": math.inf}, "guarantee"),
        (PROVEN, {"epsilon": -0.1}, "epsilon"),
        (PROVEN, {"epsilon": math.nan}, "epsilon"),
        (PROVEN, {"delta": 1.0}, "delta"),
        (PROVEN, {"delta": -1e-9}, "delta"),
        (PROVEN, {"guarantee": "cryptographic"}, "guarantee"),
        (PROVEN, {"guarantee": "magic"}, "guarantee must be one of"),
        (PROVEN, {"unit": "family"}, "unit"),
        (PROVEN, {"neighbours": "near"}, "neighbours"),
        (PROVEN, {"randomness": "dice"}, "randomness"),
        (PROVEN, {"mechanism": " "}, "mechanism"),
        (PROVEN, {"who_sees": {}}, "who sees"),
        (PROVEN, {"who_sees": {"server": ""}}, "server"),
        (PROVEN, {"not_protected": ()}, "not protected"),
        (PROVEN, {"not_protected": "everything else"}, "list"),
        (PROVEN, {"assumptions": ("fine", "")}, "assumptions"),
        (NOTHING, {"delta": 1e-6}, "delta"),
        (NOTHING, {"epsilon": 1.0}, "guarantee"),
        (NOTHING, {"claim": Claim("the paper", "epsilon = 1", None)}, "hold"),
        (SECRET, {"assumptions": ()}, "assumptions"),
        (SECRET, {"epsilon": math.inf}, "guarantee"),
        (SEEN, {"evidence": None}, "evidence"),
    ],
)
def test_contradictions_are_refused(base, wrong, named):
    with pytest.raises(InputError, match=named):
        replace(base, **wrong)


def test_claims_need_words_and_a_reason():
    for parts in (("", "x", "y"), ("x", "", "y"), ("x", "y", "")):
        with pytest.raises(InputError):
            Claim(*parts)


# --- text and page ---


def test_text_is_complete_aligned_and_within_its_width():
    text = replace(PROVEN, claim=FAILS).to_text(width=60)
    assert max(map(len, text.splitlines())) <= 60
    flat = " ".join(text.split())
    words = "Theorem 4, 48 bits, discrete Gaussian, PLD, add/remove, clipping, takes part, noisy sums"
    for said in words.split(", "):
        assert said in flat
    assert all(line[:15].strip() == line[:15].rstrip() for line in text.splitlines())  # labels start at the margin
    assert "\n               - owner: everything" in text


class Outline(HTMLParser):
    """Collects the tags, their classes and the text of a fragment, and whether every tag was closed in order."""

    def __init__(self, html):
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.classes: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.append(tag)
        self.classes += [str(value) for name, value in attrs if name == "class"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_page_has_structure_and_colourable_classes():
    page = Outline(replace(PROVEN, claim=FAILS).to_html())
    assert page.open == []
    assert {"section", "dl", "dt", "dd", "table", "caption", "th"} <= set(page.tags)
    assert page.classes == ["statement proven", "headline", "claim fails", "reason"]
    assert Outline(NOTHING.to_html()).classes[0] == "statement unproven"
    assert Outline(replace(PROVEN, claim=Claim("a", "b", None)).to_html()).classes[-1] == "claim holds"


def test_page_escapes_everything():
    evil = "<script>alert('x')</script>\"&"
    page = replace(
        PROVEN,
        mechanism=evil,
        accountant=evil,
        evidence=evil,
        who_sees={evil: evil},
        assumptions=(evil,),
        not_protected=(evil,),
        claim=Claim(evil, evil, evil),
    ).to_html()
    assert "<script" not in page
    assert Outline(page).text.count(evil) >= 8


# --- data ---

words = st.text(min_size=1).filter(lambda text: bool(text.strip()))
sentences = st.lists(words | st.builds(Line, words, words), min_size=1, max_size=3).map(tuple)
claims = st.none() | st.builds(Claim, words, words, words)
common = {
    "mechanism": words,
    "randomness": st.sampled_from(["operating system", "injected", "none"]),
    "who_sees": st.dictionaries(words, words, min_size=1, max_size=3),
    "not_protected": sentences,
    "assumptions": sentences,
    "evidence": words,
    "claim": claims,
}
units = st.sampled_from(["bit", "record", "person"])
statements = st.one_of(
    st.builds(
        PrivacyStatement,
        guarantee=st.just("differential privacy"),
        unit=units,
        epsilon=st.floats(0, 1e300),
        delta=st.floats(0, 1, exclude_max=True),
        neighbours=st.sampled_from(["add/remove", "replace"]),
        accountant=words,
        **common,
    ),
    st.builds(
        PrivacyStatement,
        guarantee=st.just("none"),
        unit=st.none() | units,
        epsilon=st.none() | st.just(math.inf),
        delta=st.none(),
        **common,
    ),
    st.builds(
        PrivacyStatement,
        guarantee=st.sampled_from(["cryptographic", "measured"]),
        unit=st.none() | units,
        epsilon=st.none(),
        delta=st.none(),
        **common,
    ),
)


@settings(max_examples=40)
@given(statements)
def test_json_gives_every_statement_back(statement):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    text = statement.to_json()
    json.loads(text, parse_constant=refuse)
    again = PrivacyStatement.from_json(text)
    for one in (again, pickle.loads(pickle.dumps(statement)), copy.deepcopy(statement)):
        assert one == statement
        for name in ("not_protected", "assumptions"):
            assert [*map(line_id, getattr(one, name))] == [*map(line_id, getattr(statement, name))]
    assert list(again.who_sees) == list(statement.who_sees)
    assert again.headline() == json.loads(text)["headline"]
    assert statement.to_text()
    assert Outline(statement.to_html()).open == []


def test_lines_show_their_text_and_are_found_by_their_id():
    lines = (Line("first", "what <one> tells"), "what another tells")
    statement = replace(PROVEN, not_protected=lines)
    assert statement == replace(PROVEN, not_protected=tuple(map(str, lines)))
    assert "what <one> tells" in statement.to_text(200)
    assert "what &lt;one&gt; tells" in statement.to_html()
    assert statement.to_dict()["not_protected"] == [*map(str, lines)]
    assert statement.to_dict()["line_ids"] == {
        "assumptions": [""] * len(PROVEN.assumptions),
        "not_protected": ["first", ""],
    }
    assert "line_ids" not in PROVEN.to_dict()
    assert find_line(statement.not_protected, "second", "first") is lines[0]
    assert find_line(statement.not_protected, "second") is None


def test_statements_of_earlier_versions_are_read():
    data = replace(PROVEN, not_protected=(Line("first", "what one tells"),)).to_dict()
    del data["line_ids"]
    assert PrivacyStatement.from_dict(data).not_protected == ("what one tells",)


def test_statements_are_values():
    assert json.loads(NOTHING.to_json())["epsilon"] == "infinity"
    for clone in (copy.deepcopy(PROVEN), pickle.loads(pickle.dumps(PROVEN)), replace(PROVEN)):
        assert clone == PROVEN
    roles = {"server": "noisy sums"}
    statement = replace(PROVEN, who_sees=roles)
    roles["server"] = "everything"
    assert statement.who_sees == {"server": "noisy sums"}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{", "JSON"),
        ("[]", "list"),
        ("{}", "version 1"),
        (PROVEN.to_json().replace('"version": 1', '"version": 2'), "version 1"),
        (PROVEN.to_json().replace('"mechanism"', '"machine"'), "unknown"),
        (PROVEN.to_json().replace('"epsilon": 1.0', '"epsilon": "little"'), "ill-typed"),
        (PROVEN.to_json().replace('"epsilon": 1.0', '"epsilon": NaN'), "epsilon"),
        (PROVEN.to_json().replace('"unit": "person"', '"unit": null'), "unit"),
        (NOTHING.to_json().replace('"why_it_fails"', '"why"'), "ill-typed"),
        (PROVEN.to_json()[:-1] + ', "line_ids": []}', "ill-typed"),
        (PROVEN.to_json()[:-1] + ', "line_ids": {"not_protected": ["a", "b"]}}', "2 ids for 1"),
        (PROVEN.to_json()[:-1] + ', "line_ids": {"not_protected": [5]}}', "ill-typed"),
    ],
)
def test_data_that_is_no_statement_is_refused(text, named):
    with pytest.raises(InputError, match=named):
        PrivacyStatement.from_json(text)
