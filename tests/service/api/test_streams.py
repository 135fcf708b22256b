"""Streams: paced releases as server-sent events, permanent symbols for ever, and what an app may know beforehand."""

import itertools
import json

import pytest

from blindsight.errors import InputError, PrivacyError
from blindsight.service.releases import MOST_STREAMS

FAST = 0.01


@pytest.fixture
def service(start):
    return start(stream_seconds=FAST).settled()


def taken(stream, count):
    """The next releases of a stream, which stays open."""
    return list(itertools.islice(stream, count))


def logged(service, action):
    return [entry.details for entry in service.as_("operator").log() if entry.action == action]


def test_a_window_is_streamed_frame_by_frame_and_then_it_ends(service):
    service.grant(frames=2)
    app = service.as_("weather")
    got = list(app.stream("ann", every=FAST))
    assert len(got) == 2
    assert [len(one.rows) for one in got] == [1, 1]
    assert [one["frames"] for one in logged(service, "release")] == [1, 1]
    with pytest.raises(PrivacyError):
        list(app.stream("ann", every=FAST))


def test_a_permanent_symbol_goes_on_for_ever_and_costs_once(service):
    job = service.as_("weather").propose("ann", frames=2, then="permanent").id
    service.work()
    asked = service.as_("ann").proposal(job)
    assert {one.attribute for one in asked.cost} == {"smiling"}
    assert all(0.5 <= one.at_most <= 0.6 and one.certified for one in asked.cost)
    assert service.as_("weather").proposal(job).cost is None
    service.as_("ann").answer(job, "allow")
    stream = service.as_("weather").stream("ann", every=FAST)
    got = taken(stream, 30)
    service.as_("ann").add_frame(service.picture(99))
    got += taken(stream, 5)
    assert {one.rows for one in got} == {got[0].rows}
    assert len(logged(service, "release")) == 1
    service.as_("ann").revoke_grant(service.as_("ann").grants()[0].number, "enough")
    assert len(list(stream)) < 1000  # what was on its way, and the end
    (repeated,) = logged(service, "repeat release")
    assert repeated["repeated"] >= 34
    with pytest.raises(PrivacyError):
        list(service.as_("weather").stream("ann", every=FAST))


def test_one_frame_named_several_times_gives_no_permanent_symbol_of_several(service):
    """What most of n frames show is certified; an app that may name frames would have what a single one shows."""
    job = service.as_("weather").propose("ann", frames=2, then="permanent").id
    service.work()
    service.as_("ann").answer(job, "allow")
    first, second = service.as_("ann").frames()[:2]
    app, platform = service.as_("weather"), service.gateway.platform
    for frames in ([first, first], [second, first, second]):
        with pytest.raises(InputError, match="each once"):
            app.release("ann", frames=frames)
    assert platform.symbols("ann") == ()
    got = app.release("ann", frames=[first, second]).rows
    assert app.release("ann", frames=[first, first]).rows == got  # nobody looks at frames any more
    assert [one.frames for one in platform.symbols("ann")] == [2]


def test_who_comes_back_gets_what_was_sent_since_and_pays_nothing(service):
    service.grant(frames=2)
    app = service.as_("weather")
    first, second = app.stream("ann", every=FAST)
    assert app.grants()[-1].released == 2
    assert list(app.stream("ann", every=FAST, after=first.receipt["position"])) == [second]
    with pytest.raises(PrivacyError):  # there is nothing since, and the budget is used up
        list(app.stream("ann", every=FAST, after=second.receipt["position"]))
    service.as_("ann").revoke_grant(app.grants()[-1].number, "enough")
    with pytest.raises(PrivacyError):
        list(app.stream("ann", every=FAST, after=first.receipt["position"]))
    assert len(logged(service, "release")) == 2


def test_events_have_ids_and_an_end_with_a_reason(service):
    service.grant(frames=1)
    text = service.call("weather", "GET", f"/v1/streams/ann?every={FAST}").text
    events = [dict(line.split(": ", 1) for line in part.split("\n")) for part in text.strip().split("\n\n")]
    assert [one["event"] for one in events] == ["release", "end"]
    released = json.loads(events[0]["data"])
    assert int(events[0]["id"]) == released["receipt"]["position"]
    assert "frame" in json.loads(events[1]["data"])["reason"]


def test_another_stream_about_the_same_person_takes_the_place_of_the_first(service):
    job = service.as_("weather").propose("ann", frames=2, then="permanent").id
    service.work()
    service.as_("ann").answer(job, "allow")
    first = service.as_("weather").stream("ann", every=FAST)
    taken(first, 1)
    with service.client(service.tokens["weather"]) as other:
        second = other.stream("ann", every=FAST)
        taken(second, 1)
        assert len(list(first)) < 1000
        assert len(taken(second, 3)) == 3
        second.close()


def test_a_token_that_ends_ends_the_stream(service):
    job = service.as_("weather").propose("ann", frames=2, then="permanent").id
    service.work()
    service.as_("ann").answer(job, "allow")
    stream = service.as_("weather").stream("ann", every=FAST)
    taken(stream, 2)
    service.as_("operator").revoke_principal(service.as_("weather").me.id)
    assert len(list(stream)) < 1000


def test_streams_are_bounded_and_bad_questions_get_a_sentence(service, monkeypatch):
    app = service.as_("weather")
    for wrong in (0, FAST / 2, 1e9):
        with pytest.raises(InputError, match="every"):
            list(app.stream("ann", every=wrong))
    with pytest.raises(PrivacyError):
        list(app.stream("nobody", every=FAST))
    with pytest.raises(PrivacyError):
        list(service.as_("ann").stream("ann", every=FAST))
    answer = service.call("weather", "GET", "/v1/streams/ann", headers={"Last-Event-ID": "x"})
    assert answer.status_code == 422
    streams, weather = service.gateway.streams, service.gateway.authenticate(service.tokens["weather"])
    for number in range(MOST_STREAMS):
        streams._open["weather", f"person {number}"] = object()
    with pytest.raises(InputError, match=str(MOST_STREAMS)):
        streams.open(weather, "ann", None)


def test_an_app_knows_beforehand_what_to_fit_and_what_can_be_had(service):
    about = service.as_("weather").platform()
    assert (about.pipeline, about.dimension, about.side, about.frames) == ("cells 1", 20, 8, 2)
    unchanging = {one.name: one.unchanging for one in about.attributes}
    assert unchanging == {"smiling": False, "gender": True, "age": True}
    assert about.pictures == 2 * about.persons


def test_what_changes_has_no_permanent_symbol(service):
    service.as_("weather").register_app(["smiling"])
    service.as_("ann").set_private(["gender"])
    service.work()
    job = service.as_("weather").propose("ann", frames=2, then="permanent").id
    service.work()
    found = service.as_("ann").proposal(job)
    assert found.verdict == "denied"
    assert "unchanging" in found.sentence


def test_symbols_drawn_at_random_name_their_epsilon(service):
    job = service.as_("weather").propose("ann", personal=1.0).id
    service.work()
    assert "1" in service.as_("ann").proposal(job).sentence
    assert service.as_("ann").answer(job, "allow").grant is not None
    service.as_("weather").release("ann", latest=1)
    assert service.gateway.platform.spent("ann") == pytest.approx(1.0)
