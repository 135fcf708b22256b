"""The report is one self-contained page that says what it was given, escapes what it must, and reads well anywhere."""

from html.parser import HTMLParser

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

    def __init__(self, page):
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in {"meta", "img", "br", "link"}:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def render(statements=1):
    with drawing() as (figure, axes):
        axes.plot([0, 1], [0, 1], color=SERIES[0])
        axes.set_xlabel("epsilon per record")
        svg = to_svg(figure)
    columns, rows = ("method", "accuracy", "verdict"), (("a", "0.91", "refuted"), ("b", "-", "accept"))
    blocks = (
        Text("5 < 6 & so on"),
        Table(columns, rows, caption="Scores", title="Some <scores>"),
        Plot(svg, caption="A line", alt="a rising line"),
        Picture(Image.new("RGB", (4, 3), "red"), caption="Red", alt="a red field"),
        *[StatementBlock(STATEMENT)] * statements,
    )
    return render_report("A title", [Chapter("First & last", "What was <found>.", blocks)], facts={"Seed": "0"})


@pytest.fixture(scope="module")
def page():
    return render()


def test_page_is_balanced_and_self_contained(page):
    parser = Balanced(page)
    assert parser.open == []
    links = [a.get(k) or "" for _, a in parser.seen for k in ("src", "href", "xlink:href") if k in a]
    assert any(link.startswith("data:image/") for link in links)
    assert all(link.startswith(("#", "data:image/")) for link in links)
    assert not {"script", "link", "iframe"} & {tag for tag, _ in parser.seen}
    assert page == render()


def test_text_is_escaped_everywhere(page):
    for part in ("5 &lt; 6 &amp; so on", "What was &lt;found&gt;.", "Flipping &lt;as published&gt;", "&lt;scores&gt;"):
        assert part in page
    assert "<found>" not in page


def test_everything_visible_has_words_for_those_who_cannot_see(page):
    seen = Balanced(page).seen
    assert all(a.get("alt") for tag, a in seen if tag == "img")
    assert any(a.get("role") == "img" and a.get("aria-label") == "a rising line" for _, a in seen)
    assert ("html", {"lang": "en"}) in seen


def test_numbers_stand_right_words_left_and_verdicts_are_coloured(page):
    for part in (
        '<th scope="col" class="number">accuracy</th>',
        '<td class="number">0.91</td>',
        '<td class="number">-</td>',
        '<th scope="col">method</th>',
        '<td class="mark bad">refuted</td>',
        '<td class="mark good">accept</td>',
    ):
        assert part in page


def test_several_statements_are_folded_to_their_headlines(page):
    assert 'class="claim fails"' in page
    assert "<details" not in page
    folded = render(statements=2)
    assert folded.count('<details class="unproven"><summary>Nothing is proven') == 2
    assert folded.count('class="claim fails"') == 2
    assert Balanced(folded).open == []


def test_plots_follow_the_theme_and_keep_their_text(page):
    svg = page[page.index("<svg", page.index('class="plot"')) :]
    for part in ("var(--series-1)", "var(--ink)", "epsilon per record"):
        assert part in svg
    assert INK not in svg


def test_photographs_are_smaller_as_jpeg():
    photograph = Image.effect_noise((64, 64), 40).convert("RGB")
    assert Picture(photograph, "", "noise").data_uri().startswith("data:image/jpeg;base64,")
    assert Picture(Image.new("RGB", (64, 64), "red"), "", "red").data_uri().startswith("data:image/png;base64,")


def test_anchor_leads_to_its_chapter(page):
    assert 'href="#first-last"' in page
    assert '<section class="chapter" id="first-last"' in page


def test_unwritable_place_gets_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="a part of the path is a file"):
        write_report(tmp_path / "file" / "report.html", "t", [], facts={})
