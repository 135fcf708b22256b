"""The page in a real browser: all five tabs clicked through, checked by axe in every look, and used by keyboard."""

import io
import json
import os
import shutil
from importlib.resources import files

import pytest
from pageservice import PageService
from PIL import Image
from smallservice import KEY, Cast, asked, enrolled, frames

from blindsight.client import Identity
from blindsight.crypto.sealedbox import ExchangeKey

CHROMIUM = shutil.which("chromium")
AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text()
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
TABS = ("Sift", "Search", "Learn", "Audit", "Ledger")


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    opened = PageService(tmp_path_factory.mktemp("browser"), filled=True)
    opened.cast = Cast(opened.gateway, apps="XY")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def chromium():
    if CHROMIUM is None:
        sentence = "the page was NOT tested in a browser: there is no chromium. Install it: apt-get install chromium."
        (pytest.fail if os.environ.get("BLINDSIGHT_BROWSER") == "required" else pytest.skip)(sentence)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        plain = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--renderer-process-limit=1"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=plain, timeout=120_000)
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium, service):
    """Returns pages, of a look and a width, that must not complain to the console."""
    contexts, complaints = [], []

    def opened(*, token=None, width=1280, look="light", scripts=True):
        context = chromium.new_context(
            base_url=service.home,
            viewport={"width": width, "height": 900},
            color_scheme=look,
            java_script_enabled=scripts,
        )
        contexts.append(context)
        context.set_default_timeout(120_000)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        if token is not None:
            cookies = service.browser(token).cookies.jar
            context.add_cookies([{"name": one.name, "value": one.value, "url": service.home} for one in cookies])
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


def axe_finds(page):
    page.evaluate(AXE)
    found = page.evaluate("rules => axe.run(document, {runOnly: rules})", RULES)
    assert found["passes"]
    return [(one["id"], node["html"][:150]) for one in found["violations"] for node in one["nodes"]]


@pytest.mark.parametrize(
    ("width", "look"),
    [
        (1280, "light"),
        (380, "dark"),
        pytest.param(1280, "dark", marks=pytest.mark.slow),
        pytest.param(380, "light", marks=pytest.mark.slow),
    ],
)
def test_all_tabs_are_reached_by_clicking_and_accessible_in_every_look(service, open_page, width, look):
    page = open_page(width=width, look=look)
    page.goto("/login")
    page.get_by_label("Token").fill(service.cast.ann_token)
    page.get_by_role("main").get_by_role("button", name="Log in").click()
    page.wait_for_url("**/sift")
    for tab in TABS:
        page.get_by_role("navigation", name="Parts").get_by_role("link", name=tab).click()
        page.wait_for_url(f"**/{tab.lower()}")
        page.wait_for_load_state("networkidle")
        assert page.title() == f"{tab} · Blindsight"
        assert axe_finds(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(
    ("role", "tab", "heading"),
    [("operator", "ledger", "The log"), ("operator", "operator", "Principals"), ("app", "app", "Proposals")],
)
def test_what_only_an_operator_or_an_app_sees_is_accessible(service, open_page, role, tab, heading):
    token = service.operator_token
    if role == "app":
        token = enrolled(service.gateway, service.operator, "door", "app")[1]
    page = open_page(token=token, width=380, look="dark")
    page.goto(f"/{tab}")
    assert page.get_by_role("heading", name=heading).is_visible()
    assert axe_finds(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 380


def test_a_chart_tells_numbers_and_a_run_that_goes_on_is_looked_at_again(service, open_page):
    page = open_page(token=service.operator_token)
    page.goto("/learn")
    page.locator(".chart .u-over").hover(position={"x": 30, "y": 40})
    assert page.locator(".u-series", has_text="score").first.locator(".u-value").text_content() == "0.800"
    page.mouse.move(0, 0)
    history = service.gateway.settings.folder / "runs" / "going on" / "history.json"
    history.write_text(json.dumps([{"round": number, "score": 0.1 * number} for number in range(1, 8)]))
    page.get_by_text("7 rounds, not finished").wait_for()


def test_a_phone_shows_all_of_the_consent_card_and_where_the_key_goes(service, open_page):
    job = asked(service.gateway, service.cast, app="X")
    page = open_page(token=service.cast.ann_token, width=390)
    page.goto("/sift")
    desk = page.get_by_role("region", name="Your decisions")
    assert desk.get_by_label("Bring its file").bounding_box()["y"] < 900
    card = desk.locator(".ask").first
    for cell in card.locator(".costs tbody").first.locator("th, td").all():
        box = cell.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
    assert axe_finds(page) == []
    service.gateway.answer(service.cast.ann, job, "refuse")


def test_an_owner_answers_a_proposal(service, open_page):
    job = asked(service.gateway, service.cast, app="Y")
    page = open_page(token=service.cast.ann_token)
    page.goto("/sift")
    desk = page.get_by_role("region", name="Your decisions")
    desk.get_by_text("Evidence: every attacker").click()
    assert desk.get_by_role("cell", name="smiling").first.is_visible()
    desk.get_by_role("button", name="Allow").click()
    desk.get_by_text("Your key is not in this browser. Bring its file first").wait_for()
    other = json.dumps({"key": "07" * 32}).encode()
    for content, said in ((b"{}", "holds no key"), (other, "of somebody else")):
        desk.get_by_label("Bring its file").set_input_files({"name": "a", "mimeType": "text/plain", "buffer": content})
        desk.get_by_text(said).wait_for()
    mine = json.dumps({"key": KEY.secret_bytes().hex()}).encode()
    with page.expect_navigation():
        desk.get_by_label("Bring its file").set_input_files({"name": "a", "mimeType": "text/plain", "buffer": mine})
    assert_shown(page, desk, frames(3)[::-1])
    assert axe_finds(page) == []
    desk.get_by_role("button", name="Allow").click()
    page.wait_for_url("**/sift#desk")
    assert service.gateway.proposal(service.cast.ann, job).answer == "allow"
    page.goto("/ledger")
    assert page.get_by_role("cell", name="Y", exact=True).is_visible()


def assert_shown(page, desk, pictures):
    """The pictures on the desk were opened by the page's script, each pixel of them."""
    desk.get_by_text("Your pictures").click()
    views = desk.locator("canvas[data-shown=yes]")
    views.nth(len(pictures) - 1).wait_for()
    read = "view => [...view.getContext('2d').getImageData(0, 0, view.width, view.height).data]"
    for view, picture in zip(views.all(), pictures, strict=True):
        image = Image.open(io.BytesIO(picture)).convert("RGBA")
        assert bytes(view.evaluate(read)) == image.tobytes()


def test_a_code_is_redeemed_in_the_browser_and_its_key_opens_pictures(service, open_page):
    made, code = service.gateway.create_principal(service.operator, "Zoe", "owner")
    page = open_page()
    page.goto("/login")
    page.get_by_label("Code").fill(code)
    with page.expect_download() as saved:
        page.get_by_role("button", name="Redeem").click()
    page.wait_for_url("**/sift")
    identity = Identity.load(saved.value.path())
    zoe = service.gateway.principals.get(made.id)
    assert (identity.name, identity.role) == ("Zoe", "owner")
    assert ExchangeKey(bytes.fromhex(identity.key)).public.hex() == zoe.public_key
    assert service.gateway.principals.authenticate(identity.token) == zoe
    sent = frames(2, seed=77)
    for one in sent:
        service.gateway.add_frame(zoe, one)
    page.goto("/sift")
    assert_shown(page, page.get_by_role("region", name="Your decisions"), sent[::-1])


def test_the_keyboard_is_enough(open_page):
    page = open_page()
    page.goto("/sift")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Attributes"
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


def test_without_scripts_everything_is_there_and_forms_work(service, open_page):
    page = open_page(token=service.cast.ann_token, scripts=False)
    for tab in TABS:
        page.goto(f"/{tab.lower()}")
        assert page.get_by_role("heading", level=1).is_visible()
    page.goto("/learn")
    assert page.locator(".line-chart polyline").count() >= 1
