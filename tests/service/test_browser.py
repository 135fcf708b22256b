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
from blindsight.service.demo import Demo

CHROMIUM = shutil.which("chromium")
AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text()
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
TABS = ("Sift", "Search", "Learn", "Ledger")


@pytest.fixture(scope="module")
def service(tmp_path_factory, demo_folder):
    opened = PageService(tmp_path_factory.mktemp("browser"), demo_folder)
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


def test_charts_tell_numbers_and_a_click_on_a_picture_changes_the_answers_in_place(service, open_page):
    page = open_page()
    page.goto("/search")
    page.locator(".chart .u-over").hover(position={"x": 30, "y": 40})
    first = next(one for one in service.demos.get("search")["methods"] if one["name"] == "codebook")
    value = page.locator(".u-series", has_text="codebook").first.locator(".u-value")
    assert value.text_content() == f"{first['scores'][0]['score']:.3f}"
    page.evaluate("window.stayed = true")
    page.get_by_role("link", name="Query 1:").click()
    page.wait_for_url("**/search?query=0*")
    page.get_by_role("radio", name="1", exact=True).check()
    page.wait_for_url("**epsilon=1*")
    page.get_by_role("heading", name="Private codes, ε = 1").wait_for()
    assert page.evaluate("document.activeElement.value") == "1"
    page.get_by_label("Private method").select_option("central")
    page.wait_for_url("**method=central*")
    assert page.evaluate("window.stayed")
    page.go_back()
    page.wait_for_url("**method=codebook*")


def test_a_run_is_watched_live_until_its_end(service, open_page):
    page = open_page(token=service.cast.ann_token)
    page.goto("/learn")
    page.get_by_role("combobox", name="Scheme").select_option("masks")
    page.get_by_role("spinbutton", name="Rounds").fill("2")
    page.get_by_role("button", name="Start a run").click()
    page.get_by_text("Finished after 2 of 2 rounds").wait_for()
    assert page.locator(".rounds tbody tr").count() == 2
    assert page.get_by_role("heading", name="What each role sees in round 2").is_visible()
    for picture in page.locator(".roles img").all():
        assert picture.evaluate("one => one.complete && one.naturalWidth") == 220


def test_an_owner_answers_a_proposal(service, open_page):
    job = asked(service.gateway, service.cast, app="Y")
    page = open_page(token=service.cast.ann_token)
    page.goto("/sift")
    desk = page.get_by_role("region", name="Your decisions")
    desk.get_by_text("Evidence: every attacker").click()
    assert desk.get_by_role("cell", name="smiling").first.is_visible()
    desk.get_by_role("button", name="Allow").click()
    desk.get_by_text("Your key is not in this browser. Bring its file first").wait_for()
    desk.get_by_text("Your pictures: 3").click()
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


def test_a_new_policy_is_tried_and_shown_when_it_is_there(service, open_page, monkeypatch):
    name, shown = "sift-smiling-male", service.demos
    data, face = shown.get(name), shown.picture(name, "face-0.png")
    made = Demo(data | {"public": "eyeglasses"}, dict.fromkeys(data["faces"], face))
    monkeypatch.setattr("blindsight.service.demo.show_sift", lambda *_: made)
    page = open_page(token=service.cast.ann_token)
    page.goto("/sift")
    page.get_by_label("The app may learn").select_option("eyeglasses")
    page.get_by_role("button", name="Try “eyeglasses” without “male”").click()
    page.get_by_text("The app reads “eyeglasses”").first.wait_for()
    assert shown.state("sift-eyeglasses-male").stage == "ready"


def test_the_keyboard_is_enough(open_page):
    page = open_page()
    page.goto("/sift")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") == "public"
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


def test_without_scripts_everything_is_there_and_forms_work(service, open_page):
    page = open_page(token=service.cast.ann_token, scripts=False)
    for tab in TABS:
        page.goto(f"/{tab.lower()}")
        assert page.get_by_role("heading", level=1).is_visible()
    page.goto("/search")
    assert page.locator(".line-chart polyline").count() == 5
    page.get_by_role("radio", name="1", exact=True).check()
    page.get_by_role("button", name="Show").click()
    assert page.get_by_role("heading", name="Private codes, ε = 1").is_visible()
