"""The page without a browser: what is readable, who may do what, and that nothing from outside becomes markup."""

import json
import re
from html.parser import HTMLParser

import pytest
from pageservice import PageService
from smallservice import KEY, Cast, allow, asked, epoch_keys, frames, granted, linear, work

from blindsight.dp import LaplaceMechanism, Ledger
from blindsight.service.proposals import ODOMETER

TABS = ("sift", "search", "learn", "audit", "ledger")
APP = "<script>alert(1)</script>"
APP_TEXT = "&lt;script&gt;alert(1)&lt;/script&gt; asks"


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    opened = PageService(tmp_path_factory.mktemp("page"), filled=True)
    yield opened
    opened.close()


class Markup(HTMLParser):
    """Notes every element with its attributes, and the text."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.text = [], ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


@pytest.mark.parametrize("tab", TABS)
@pytest.mark.parametrize("logged_in", [False, True])
def test_every_tab_is_a_whole_page_without_anything_inline(service, tab, logged_in):
    answer = service.browser(service.operator_token if logged_in else None).get(f"/{tab}")
    assert answer.status_code == 200
    assert "unsafe" not in answer.headers["content-security-policy"]
    markup = Markup(answer.text)
    tags = [tag for tag, _ in markup.elements]
    assert tags.count("h1") == tags.count("main") == tags.count("title") == 1
    assert "style" not in tags
    for tag, attributes in markup.elements:
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
        assert tag != "script" or attributes["src"].startswith("/static/")
        assert tag != "img" or attributes["alt"]
    current = [attributes["href"] for _, attributes in markup.elements if attributes.get("aria-current") == "page"]
    assert current == [f"/{tab}"]


@pytest.mark.parametrize("tab", TABS)
def test_everything_a_tab_refers_to_is_there_and_of_this_service(service, tab):
    page = service.visitor.get(f"/{tab}").text
    found = {
        address for address in re.findall(r'(?:src|href)="([^"]+)"', page) if not address.startswith(("data:", "#"))
    }
    assert all(address.startswith("/") for address in found)
    kinds = {re.sub(r"\d+", "0", address): address for address in sorted(found)}  # one digit stands for all
    for address in kinds.values():
        assert service.visitor.get(address.replace("&amp;", "&")).status_code == 200


def test_the_tabs_show_what_is_in_the_folder_and_to_whom(service):
    _, owner = service.newcomer("looking on", "owner")
    _, app = service.newcomer("an app", "app")
    shown = {"learn": ("digits", "0.9", "not finished"), "search": ("holiday", "20 pictures", "epsilon")}
    shown["audit"] = ("of digits", "no picture &lt;i&gt;comes back", "not refuted", "a note")
    for tab, texts in shown.items():
        for browser in (owner, service.browser(service.operator_token)):
            assert all(text in browser.get(f"/{tab}").text for text in texts)
        assert texts[0] not in service.visitor.get(f"/{tab}").text.partition("<main")[2]
        assert (texts[0] in app.get(f"/{tab}").text.partition("<main")[2]) == (tab == "search")
    page = owner.get("/learn").text
    assert page.count("line-chart") == 1
    assert "data-refresh" in page  # the other one goes on
    sift = Markup(service.visitor.get("/sift").text).text
    assert all(name in sift for name in service.gateway.attributes())


def test_what_cannot_be_shown_says_why_and_leaves_the_others(story):
    folder = story.gateway.settings.folder
    for name, content in (("broken", "{"), ("strange", "[]"), ("fine", "{}")):
        (folder / "runs" / name).mkdir(parents=True)
        (folder / "runs" / name / "run.json").write_text(content)
    (folder / "audits" / "old").mkdir(parents=True)
    (folder / "audits" / "old" / "audit.json").write_text("{}")
    page = story.ann.get("/learn").text
    assert page.count("This cannot be shown") == 2
    assert "0 rounds, not finished" in page
    assert str(folder) not in page
    assert "This cannot be shown" in story.ann.get("/audit").text


def test_what_is_not_there_is_not_found(service):
    for address in (
        "/static/nothing.js",
        "/static/..%2froutes.py",
        "/learn/runs/digits",
        "/demos/search",
    ):
        assert service.visitor.get(address).status_code == 404


def test_static_files_are_kept_by_their_version(service):
    page = service.visitor.get("/sift").text
    (address,) = set(re.findall(r'"(/static/page\.css\?v=[^"]+)"', page))
    assert "immutable" in service.visitor.get(address).headers["cache-control"]
    assert "immutable" not in service.visitor.get("/static/page.css").headers["cache-control"]
    assert "--series-1" in service.visitor.get("/static/report.css").text


def test_a_token_becomes_a_cookie_that_scripts_and_other_sites_do_not_get(service):
    browser = service.browser()
    answer = browser.post(
        "/login", data={"token": f" {service.operator_token}\n", "then": "/ledger"}, follow_redirects=False
    )
    assert (answer.status_code, answer.headers["location"]) == (303, "/ledger")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    page = browser.get("/ledger")
    assert "The log" in page.text
    assert service.operator_token not in page.text
    browser.post("/logout")
    assert "The log" not in browser.get("/ledger").text


def test_a_wrong_or_revoked_token_opens_nothing(service):
    answer = service.browser().post("/login", data={"token": "blindsight_" + "x" * 43})
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    principal, browser = service.newcomer("passing by", "owner")
    assert "Your decisions" in browser.get("/sift").text
    service.gateway.revoke_principal(service.operator, principal.id)
    assert "Your decisions" not in browser.get("/sift").text


def test_logging_in_leads_nowhere_else(service):
    for then in ("//elsewhere.example", "/\\elsewhere.example", "https://elsewhere.example", "", "/a\nb"):
        form = {"token": service.operator_token, "then": then}
        assert service.browser().post("/login", data=form, follow_redirects=False).headers["location"] == "/sift"


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://elsewhere.example"},
        {"origin": "null"},
        {"origin": "null", "sec-fetch-site": "cross-site"},
        {"origin": "http://127.0.0.1.elsewhere.example"},
    ],
)
def test_posts_of_other_sites_are_refused(service, headers):
    browser = service.browser(service.operator_token)
    form = {"token": service.operator_token, "job": "j", "said": "allow", "number": "1", "reason": "none"}
    for address in ("/login", "/logout", "/sift/answer", "/ledger/revoke"):
        answer = browser.post(address, data=form, headers=headers, follow_redirects=False)
        assert answer.status_code == 403


def test_a_form_sent_without_referrer_by_this_page_is_taken(service):
    headers = {"origin": "null", "sec-fetch-site": "same-origin"}
    form = {"token": service.operator_token}
    assert service.browser().post("/login", data=form, headers=headers, follow_redirects=False).status_code == 303


def test_nothing_is_started_or_decided_without_a_token(service):
    for address in ("/sift/private", "/sift/answer", "/sift/retention"):
        answer = service.visitor.post(address, data={"attributes": "age", "job": "j", "said": "allow"})
        assert answer.status_code == 401


@pytest.fixture
def story(tmp_path):
    """A service of its own, with Ann, who hides smiling, and an app whose name is an attempt at markup."""
    service = PageService(tmp_path)
    service.cast = Cast(service.gateway, apps=[APP])
    service.ann = service.browser(service.cast.ann_token)
    yield service
    service.close()


def test_an_owner_allows_and_ends_what_was_verified(story):
    job = asked(story.gateway, story.cast, app=APP, frames=2)
    page = story.ann.get("/sift").text
    assert APP not in page
    assert APP_TEXT in page
    assert "Fewer details" in page
    form = {"job": job, "said": "allow"}
    for keys in ("", "[", "[1]", '{"a": "b"}', '{"a": 1}', "{}"):
        assert story.ann.post("/sift/answer", data=form | {"keys": keys}).status_code == 422
    form["keys"] = json.dumps(epoch_keys(story.gateway, story.cast.ann))
    answer = story.ann.post("/sift/answer", data=form, follow_redirects=False)
    assert answer.headers["location"] == "/sift#desk"
    (grant,) = story.gateway.grants(story.cast.ann)
    assert (grant.app, grant.standing) == (APP, "live")
    assert "0 of 2" in story.ann.get("/ledger").text
    story.ann.post("/ledger/revoke", data={"number": str(grant.number), "reason": "no more"})
    assert story.gateway.grants(story.cast.ann)[0].standing == "revoked"


def test_nobody_answers_for_somebody_else(story):
    job = asked(story.gateway, story.cast, app=APP)
    _, bob = story.newcomer("Bob", "owner")
    _, app = story.newcomer("Y", "app")
    assert bob.post("/sift/answer", data={"job": job, "said": "allow"}).status_code == 404
    for browser in (app, story.browser(story.operator_token)):
        assert browser.post("/sift/answer", data={"job": job, "said": "allow"}).status_code == 403
        assert browser.post("/sift/private", data={"attributes": "age"}).status_code == 403
    assert story.ann.post("/sift/answer", data={"job": job, "said": "perhaps"}).status_code == 422
    assert APP_TEXT in story.ann.get("/sift").text
    story.ann.post("/sift/answer", data={"job": job, "said": "refuse"})
    assert story.gateway.grants(story.cast.ann) == ()
    assert story.gateway.proposal(story.cast.ann, job).answer == "refuse"
    assert APP_TEXT not in story.ann.get("/sift").text
    story.ann.post("/sift/private", data={"attributes": ["age", "smiling"]})
    assert set(story.gateway.person(story.cast.ann, "Ann").private) == {"age", "smiling"}
    for wrong in ({"attributes": ["mood"]}, {}):
        assert story.ann.post("/sift/private", data=wrong).status_code == 422


def test_what_was_not_accepted_stands_behind_what_waits_for_an_answer(story):
    leaky = asked(story.gateway, story.cast, linear({1: 1.0}), app=APP)
    assert story.gateway.proposal(story.cast.ann, leaky).verdict == "reject"
    page = story.ann.get("/sift").text
    assert "No app waits for your answer" in page
    assert "asks, and gets nothing" in page
    assert 'value="allow"' not in page
    asked(story.gateway, story.cast, app=APP)
    page = story.ann.get("/sift").text
    assert page.index('value="allow"') < page.index("asks, and gets nothing")
    assert story.ann.post("/sift/answer", data={"job": leaky, "said": "allow", "keys": "{}"}).status_code in (403, 422)
    story.ann.post("/sift/answer", data={"job": leaky, "said": "refuse"})
    assert "asks, and gets nothing" not in story.ann.get("/sift").text


def test_an_owner_reads_what_is_out(story):
    job = asked(story.gateway, story.cast, app=APP)
    allow(story.gateway, story.cast.ann, job)
    assert "Measure it" in story.ann.get("/ledger").text
    assert story.gateway.jobs.find([ODOMETER]) == ()  # looking starts nothing
    assert "Measuring" in story.ann.post("/ledger/measure").text
    work(story.gateway)
    page = story.ann.get("/ledger").text
    assert "at most" in page
    assert "Measuring" not in page
    _, bob = story.newcomer("Bob", "owner")
    assert "you have not said yet what you hide" in bob.get("/ledger").text


def test_the_log_is_for_the_operator_and_holds_together(story):
    job = asked(story.gateway, story.cast, app=APP)
    allow(story.gateway, story.cast.ann, job)
    ledger = Ledger(story.gateway.settings.folder / "ledger.jsonl")
    ledger.set_budget("holiday photos", unit="person", neighbours="add/remove", epsilon=1.0, delta=0.0)
    told = {"scope": "holiday photos", "unit": "person", "neighbours": "add/remove", "purpose": "a test"}
    ledger.release(LaplaceMechanism(sensitivity=1.0, epsilon=0.25), [4.0], **told)
    page = story.browser(story.operator_token).get("/ledger").text
    assert APP not in page
    for shown in ("intact", "holiday photos", "0.25", "propose", "create principal", "&lt;script&gt;"):
        assert shown in page
    assert "The log" not in story.ann.get("/ledger").text


def test_a_long_log_is_read_page_by_page(story):
    for number in range(60):
        story.gateway.audit.append("operator", "note", {"number": number})
    browser = story.browser(story.operator_token)
    browser.get("/ledger")  # which is noted once
    last = story.gateway.check_log(story.operator).entries

    def positions(address):
        return [
            int(number)
            for number in re.findall(r'<tr><th scope="row">(\d+)</th><td class="time">', browser.get(address).text)
        ]

    latest = positions("/ledger")
    assert latest == list(range(last, last - 50, -1))
    assert positions(f"/ledger?before={latest[-1]}") == list(range(latest[-1] - 1, 0, -1))
    assert positions("/ledger?before=1") == []


def test_an_owner_uploads_photos_and_keeps_the_newest(story):
    sent = [("pictures", ("a.png", frames(1)[0])), ("pictures", ("b.txt", b"hello")), ("pictures", ("<i>.png", b""))]
    page = story.ann.post("/sift/frames", files=sent)
    assert page.status_code == 200
    assert "1 of 3 pictures were taken in" in page.text
    assert "<strong>b.txt</strong>" in page.text
    assert "&lt;i&gt;.png" in page.text
    assert "1 is here" in story.ann.post("/sift/retention", data={"frames": "1"}).text
    assert story.ann.post("/sift/retention", data={"frames": "many"}).status_code == 422
    assert story.visitor.post("/sift/frames", files=sent[:1]).status_code == 401


def test_an_owner_makes_and_revokes_a_camera_and_takes_her_log_home(story):
    page = story.ann.post("/sift/devices", data={"name": "front door", "days": "30"})
    token = re.search(r"blindsight_[A-Za-z0-9_-]{43}", page.text).group()
    assert story.gateway.authenticate(token).role == "device"
    again = story.ann.get("/sift").text
    assert token not in again
    id = re.search(r"device-[0-9a-f]+", again).group()
    _, bob = story.newcomer("bob", "owner")
    assert bob.post("/sift/devices/revoke", data={"id": id}).status_code == 404
    assert "revoked" in story.ann.post("/sift/devices/revoke", data={"id": id}).text
    assert story.gateway.authenticate(token) is None
    actions = [json.loads(line)["action"] for line in story.ann.get("/sift/log.jsonl").text.splitlines()]
    assert actions[-2:] == ["add device", "revoke device"]
    assert story.visitor.get("/sift/log.jsonl").status_code == 401


def test_what_was_denied_or_has_ended_stays_on_the_desk(story):
    number = granted(story.gateway, story.cast, app=APP)
    story.gateway.revoke(story.cast.ann, number, "I moved house")
    asked(story.gateway, story.cast, app=APP, frames=500)
    page = story.ann.get("/sift").text
    assert "Denied and ended (2)" in page
    assert "I moved house" in page


def test_an_operator_adds_people_and_attackers_and_never_sees_a_token(story):
    browser = story.browser(story.operator_token)
    page = browser.post("/operator/principals", data={"name": "<b>eve", "role": "owner", "days": "30"}).text
    assert "&lt;b&gt;eve" in page
    code = re.search(r"[A-Z2-7]{6}(-[A-Z2-7]{6}){3}", page).group()
    eve, token = story.gateway.enrol(code, KEY.public.hex())
    again = browser.get("/operator").text
    assert code not in again
    assert token not in again
    another = browser.post("/operator/code", data={"id": eve.id}).text
    assert re.search(r"[A-Z2-7]{6}(-[A-Z2-7]{6}){3}", another).group() != code
    assert story.gateway.authenticate(token) is None
    browser.post("/operator/revoke", data={"id": eve.id})
    assert story.gateway.principals.get(eve.id).revoked is not None
    number = granted(story.gateway, story.cast, linear({2: 1.0, 3: 1.0}), app=APP)
    assert "1 grant is suspended" in browser.post("/operator/attackers", data={"name": "naive Bayes, tuned"}).text
    assert "naive Bayes, tuned" in story.gateway.attackers()[0]
    browser.post("/operator/review")
    work(story.gateway)
    assert "Verify again now" not in browser.get("/operator").text
    assert next(one for one in story.gateway.grants(story.operator) if one.number == number).standing == "live"
    for wrong in (
        {"name": "x" * 101, "role": "app"},
        {"name": "a", "role": "device"},
        {"name": "Ann", "role": "app"},
        {"name": "a/b", "role": "app"},
    ):
        assert browser.post("/operator/principals", data=wrong).status_code in (409, 422)
    for days in ("0", "9999", "-1", "soon"):
        form = {"name": "new", "role": "app", "days": days}
        assert browser.post("/operator/principals", data=form).status_code == 422
    assert browser.post("/operator/attackers", data={"name": "nobody"}).status_code == 422
    assert browser.post("/operator/code", data={"id": "nobody"}).status_code == 404
    assert browser.post("/operator/revoke", data={"id": story.operator.id}).status_code == 422  # the last one
    assert "read" in [entry.action for entry in story.gateway.entries(story.operator, limit=1000)]


def test_an_app_asks_and_sees_what_became_of_it(story):
    _, app = story.newcomer("door", "app")
    assert "Ask for the label" not in app.get("/app").text  # before it said what it wants to know
    assert app.post("/app/propose", data={"person": "Ann", "frames": "1"}).status_code == 422
    assert "Ask for the label" in app.post("/app/public", data={"attributes": ["gender"]}).text
    assert "queued" in app.post("/app/propose", data={"person": "Ann", "frames": "1", "then": "repeat"}).text
    assert "queued" in app.post("/app/propose", data={"person": "nobody", "frames": "1"}).text
    work(story.gateway)
    page = app.get("/app").text
    assert "the person is asked" in page
    assert "denied" in page
    (job,) = [one.job for one in story.gateway.proposals(story.cast.ann) if one.app == "door"]
    allow(story.gateway, story.cast.ann, job)
    page = app.get("/app").text
    assert "0 of 1" in page
    for hidden in ("smiling</td>", "evidence", "%"):
        assert hidden not in page.partition('<h2 id="proposals">')[2]
    for wrong in ({"frames": "0"}, {"frames": "many"}, {"then": "always"}, {"person": ""}, {"person": "a\nb"}):
        assert app.post("/app/propose", data={"person": "Ann", "frames": "1"} | wrong).status_code == 422
    for wrong in ([], ["x" * 101], ["a\nb"], ["a"] * 33):
        assert app.post("/app/public", data={"attributes": wrong}).status_code == 422


def test_pages_of_a_role_are_for_that_role(story):
    _, app = story.newcomer("door", "app")
    people = {"owner": story.ann, "app": app, "operator": story.browser(story.operator_token)}
    for role in ("app", "operator"):
        assert story.visitor.get(f"/{role}").status_code == 401
        for who, browser in people.items():
            assert browser.get(f"/{role}").status_code == (200 if who == role else 403)
            assert (f'href="/{role}"' in browser.get("/search").text) == (who == role)
    form = {
        "name": "eve",
        "role": "operator",
        "id": story.operator.id,
        "attributes": "gender",
        "person": "Ann",
        "frames": "1",
    }
    for address in ("principals", "code", "revoke", "attackers", "review"):
        assert story.ann.post(f"/operator/{address}", data=form).status_code == 403
        assert app.post(f"/operator/{address}", data=form).status_code == 403
    for address in ("public", "propose"):
        assert story.ann.post(f"/app/{address}", data=form).status_code == 403
