"""The report is one self-contained page that says what it was given, escapes what it must, and reads well anywhere."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image

from blindsight.errors import StorageError
from blindsight.report import Chapter, Picture, Plot, StatementBlock, Table, Text, render_report, write_report
from blindsight.report.page import INK, SERIES, drawing, to_svg
from blindsight.statement import Claim, PrivacyStatement

STATEMENT = PrivacyStatement(
    guarantee="none",
    mechanism="Random Flipping <as published>",
    unit=None,
    epsilon=float("inf"),
    delta=None,
    randomness="operating system",
    who_sees={"server": "the code"},
    not_protected=("the record",),
    claim=Claim("the paper", "epsilon = 1", "the released code carries no noise"),
)


class Balanced(HTMLParser):
    """Counts open tags; anything left at the end is not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in {"meta", "img", "br", "link"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def page() -> str:
    with drawing() as (figure, axes):
        axes.plot([0, 1], [0, 1], color=SERIES[0])
        axes.set_xlabel("epsilon per record")
        svg = to_svg(figure)
    chapter = Chapter(
        "First & last",
        "What was <found>.",
        (
            Text("5 < 6 & so on"),
            Table(("method", "accuracy"), (("a", "0.91"), ("b", "0.07")), caption="Scores"),
            Plot(svg, caption="A line", alt="a rising line"),
            Picture(Image.new("RGB", (4, 3), "red"), caption="Red", alt="a red field"),
            StatementBlock(STATEMENT),
        ),
    )
    return render_report("A title", [chapter], facts={"Seed": "0"})


def test_page_is_balanced_and_self_contained() -> None:
    parser = Balanced()
    parser.feed(page())
    assert parser.open == []
    links = [a.get(k) or "" for _, a in parser.seen for k in ("src", "href", "xlink:href") if k in a]
    assert links
    assert all(link.startswith(("#", "data:image/")) for link in links)
    assert not {"script", "link", "iframe"} & {tag for tag, _ in parser.seen}


def test_text_is_escaped_everywhere() -> None:
    html = page()
    assert "5 &lt; 6 &amp; so on" in html
    assert "What was &lt;found&gt;." in html
    assert "Random Flipping &lt;as published&gt;" in html
    assert "<found>" not in html


def test_everything_visible_has_words_for_those_who_cannot_see() -> None:
    parser = Balanced()
    parser.feed(page())
    assert all(a.get("alt") for tag, a in parser.seen if tag == "img")
    assert any(a.get("role") == "img" and a.get("aria-label") == "a rising line" for _, a in parser.seen)
    assert ("html", {"lang": "en"}) in parser.seen


def test_numbers_stand_right_and_words_left() -> None:
    html = page()
    assert '<th scope="col" class="number">accuracy</th>' in html
    assert '<td class="number">0.91</td>' in html
    assert '<th scope="col">method</th>' in html


def test_failing_claim_is_marked() -> None:
    assert 'class="claim fails"' in page()


def test_plots_follow_the_theme_and_keep_their_text() -> None:
    html = page()
    svg = html[html.index("<svg", html.index('class="plot"')) :]
    assert "var(--series-1)" in svg
    assert "var(--ink)" in svg
    assert INK not in svg
    assert "epsilon per record" in svg


def test_plots_repeat() -> None:
    assert page() == page()


def test_anchor_leads_to_its_chapter() -> None:
    assert re.search(r'href="#first-last"', page())
    assert re.search(r'<section class="chapter" id="first-last"', page())


def test_unwritable_place_gets_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="a part of the path is a file"):
        write_report(tmp_path / "file" / "report.html", "t", [], facts={})
