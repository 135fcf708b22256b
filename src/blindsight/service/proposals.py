"""Proposals: an app asks about a person, a job verifies it, the person answers; reviews verify grants again.

*The guarantee.* What was asked is in the log and the job queue; what was answered is what the platform recorded. Any
step may be cut off and begun again with the same payload: the platform counts an app's tries by what it tried, so
verifying again is no further try; the same rows, attackers and seeds give the same verdict; a review goes on with the
grants not confirmed yet. Answers are taken one after the other, so that only the first counts.

What was verified waits on disk for the answer, a folder per proposal, named by its job: the sift that the app sent,
then the sift that would be applied and all that its verification found. What is read back is what was written, or is
refused: files carry checksums, and the verdict is computed from the evidence.

*A sift from an app* is untrusted JSON: numbers and a few settings, checked one by one, never anything to run. Either a
plain matrix with its preprocessing, z = ((x - mean) / scale) matrix,

    {"mean": [...], "scale": [...], "matrix": [[...], ...], "edges": [[...], ...]}

where `edges` (optional) sorts every number into few levels, or the parts of a sift file (`sift.save_sift`),

    {"kind": "linear" | "layered" | "symbol", "settings": {...}, "arrays": {"mean": [...], ...}}

Either may have a `name`, and names the platform's pipeline (or none). A sift whose symbols are drawn by randomised
response (`sift.personal`) has the kind "personal" and the settings {"epsilon": E, "certain": kind, "settings": {...}}.
"""

import json
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, fields
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import CorruptFileError, InputError, PrivacyError, UnknownNameError
from blindsight.files import folder_lock, read_arrays, storage_errors, write_arrays
from blindsight.metrics import Interval
from blindsight.progress import Progress
from blindsight.service.jobs import Handler, Job, Jobs, new_id
from blindsight.service.log import PLATFORM, Acting, AuditLog, acting
from blindsight.service.principals import Principal
from blindsight.sift.certificate import Certificate
from blindsight.sift.consent import Proposal, Situation
from blindsight.sift.personal import PersonalSift
from blindsight.sift.platform import Platform
from blindsight.sift.register import App
from blindsight.sift.sift import LARGEST, LayeredSift, LinearSift, Sift, SymbolSift, load_sift, save_sift
from blindsight.sift.stream import ReleaseBudget, Then
from blindsight.sift.union import Examination
from blindsight.sift.verdict import AttackResult, Setting, Verification

MOST_NUMBERS = 4_000_000  # of all arrays together

MOST_WIDE = 64  # numbers that a sift may let out for a picture

_KINDS: dict[str, type[Sift]] = {kind.kind: kind for kind in (LinearSift, LayeredSift, SymbolSift)}
_PLAIN = ("mean", "scale", "matrix", "edges")
_NAME_LENGTH = 100


def sift_from_json(document: Any, *, pipeline: str, dimension: int) -> Sift:
    """Return the sift that parsed JSON describes, for features of this pipeline, or say in a sentence what is wrong."""
    if not isinstance(document, Mapping):
        raise InputError("a sift is a JSON object with mean, scale and matrix, or with kind, settings and arrays.")
    declared = "kind" in document
    _refuse_unknown(document, ("kind", "settings", "arrays", "name") if declared else (*_PLAIN, "name", "pipeline"))
    kind = document["kind"] if declared else LinearSift.kind
    if kind == PersonalSift.kind:
        return _personal(document, pipeline, dimension)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise UnknownNameError("kind of sift", str(kind)[:_NAME_LENGTH], _KINDS)
    settings = _mapping(document.get("settings", {}), "settings") if declared else {}
    named = settings.get("pipeline", pipeline) if declared else document.get("pipeline", pipeline)
    if named not in ("", pipeline):
        raise InputError("this sift belongs to another feature pipeline. Fit it to the platform's features.")
    given = _mapping(document.get("arrays", {}), "arrays") if declared else document
    sift = _made(kind, {**settings, "pipeline": pipeline}, _arrays(given, declared), _name(document.get("name", "")))
    if sift.dimension != dimension:
        raise InputError(f"this sift takes {sift.dimension} features; the platform has {dimension}.")
    if sift.width > MOST_WIDE:
        raise InputError(f"a sift may let out {MOST_WIDE} numbers for a picture; this one has {sift.width}.")
    return sift


def _personal(document: Mapping[str, Any], pipeline: str, dimension: int) -> Sift:
    settings = _mapping(document.get("settings", {}), "settings")
    epsilon = settings.get("epsilon")
    if isinstance(epsilon, bool) or not isinstance(epsilon, int | float):
        raise InputError("a personal sift needs a number epsilon among its settings.")
    inner = {"kind": settings.get("certain"), "settings": settings.get("settings", {})}
    if inner["kind"] == PersonalSift.kind:
        raise InputError("symbols are drawn at random once: a personal sift holds one of another kind.")
    rest = {name: document[name] for name in ("arrays", "name") if name in document}
    return PersonalSift(sift_from_json(inner | rest, pipeline=pipeline, dimension=dimension), float(epsilon))


def _made(kind: str, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[np.float64]], name: str) -> Sift:
    try:
        return _KINDS[kind].from_parts(settings, arrays, name)
    except InputError:
        raise
    except KeyError as missing:
        raise InputError(f"a {kind} sift needs {missing.args[0]!r}, which is not there.") from None
    except (TypeError, ValueError, IndexError, OverflowError):
        raise InputError(f"the parts of this {kind} sift do not fit each other.") from None


def _arrays(given: Mapping[str, Any], declared: bool) -> dict[str, NDArray[np.float64]]:
    """Return every array of finite numbers; non-numbers and too many are refused before an array is made."""
    lists = {str(name): given[name] for name in given if declared or name in _PLAIN}
    total = sum(_count(name, one) for name, one in lists.items())
    if total > MOST_NUMBERS:
        raise InputError(f"a sift may have {MOST_NUMBERS:,} numbers in all; this one has {total:,}.")
    return {name: _numbers(name, one) for name, one in lists.items()}


def _count(name: str, given: Any) -> int:
    """Return how many numbers a list holds, before numpy sees it: that would pad texts to the longest of them."""
    rows = given if isinstance(given, list) and given and isinstance(given[0], list) else [given]
    for row in rows:
        if not isinstance(row, list) or len(row) != len(rows[0]) or not set(map(type, row)) <= {int, float}:
            where = f"{name[:_NAME_LENGTH]!r} of a sift"
            raise InputError(f"{where} must be a list of numbers, or of rows of the same length.")
    return len(rows) * len(rows[0])


def _numbers(name: str, given: Any) -> NDArray[np.float64]:
    try:
        array = np.array(given, dtype=np.float64)
    except OverflowError:
        array = np.array([np.inf])
    if not (np.abs(array) <= LARGEST).all():
        raise InputError(f"{name[:_NAME_LENGTH]!r} of a sift must hold finite numbers within +-{LARGEST:g}.")
    return array


def _mapping(given: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise InputError(f"the {what} of a sift are a JSON object.")
    return given


def _name(given: Any) -> str:
    if not isinstance(given, str) or len(given) > _NAME_LENGTH or not given.isprintable():
        raise InputError(f"the name of a sift is one line of at most {_NAME_LENGTH} printable characters.")
    return given


def _refuse_unknown(document: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in document:
        if key not in known:
            raise UnknownNameError("part of a sift", str(key)[:_NAME_LENGTH], known)


_KIND = "blindsight/proposal.1"
_SENT, _APPLIED, _FOUND = "sent.npz", "applied.npz", "found.npz"


class Proposals:
    """The proposals of a service, in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def locked(self) -> AbstractContextManager[None]:
        """Keep other processes from answering."""
        with storage_errors("create", self._folder):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder_lock(self._folder)

    def keep_sent(self, job: str, sift: Sift) -> None:
        save_sift(sift, self._folder / job / _SENT)

    def sent(self, job: str) -> Sift:
        return load_sift(self._folder / job / _SENT)

    def keep(self, job: str, proposal: Proposal) -> None:
        save_sift(proposal.sift, self._folder / job / _APPLIED)
        write_arrays(self._folder / job / _FOUND, _KIND, _described(proposal), {}, private=True)

    def of(self, job: Job) -> Proposal:
        """Return what was verified for a job, which must be about the person and app that the job names."""
        found = self.get(job.id)
        if (found.person, found.app) != (job.payload.get("person"), job.payload.get("app")):
            raise PrivacyError("this proposal is about somebody else. Nothing was changed.")
        return found

    def forget(self, jobs: Iterable[str]) -> None:
        """Delete the files of some proposals."""
        for job in jobs:
            folder = self._folder / job
            with storage_errors("delete", folder), suppress(FileNotFoundError):
                shutil.rmtree(folder)

    def get(self, job: str) -> Proposal:
        path = self._folder / job / _FOUND
        document, _ = read_arrays(path, _KIND)
        sift = load_sift(self._folder / job / _APPLIED)
        try:
            proposal = _restored(document, sift)
        except (KeyError, TypeError, ValueError):
            raise CorruptFileError(f"{path} holds no usable proposal.") from None
        if sift.digest != document["sift"] or _described(proposal) != document:
            raise CorruptFileError(f"{path} holds another proposal than it says.")
        return proposal


def _described(proposal: Proposal) -> dict[str, Any]:
    together = proposal.examination.together
    described = {
        "person": proposal.person,
        "app": proposal.app,
        "mode": proposal.mode,
        "sift": proposal.sift.digest,
        "budget": asdict(proposal.budget),
        "situation": asdict(proposal.situation),
        "alone": proposal.examination.alone.to_dict(),
        "together": None if together is None else together.to_dict(),
        "confidence": proposal.confidence,
        "promised": proposal.promised,
    }
    plain: dict[str, Any] = json.loads(json.dumps(described, allow_nan=False))  # as a reader will see it
    return plain


def _restored(document: Mapping[str, Any], sift: Sift) -> Proposal:
    together = document["together"]
    return Proposal(
        document["person"],
        document["app"],
        document["mode"],
        sift,
        ReleaseBudget(**document["budget"]),
        _situation(document["situation"]),
        Examination(_verification(document["alone"]), None if together is None else _verification(together)),
        document["confidence"],
        document["promised"],
    )


def _situation(data: Mapping[str, Any]) -> Situation:
    app = App(tuple(data["app"]["public"]), data["app"]["version"])
    others = tuple((int(number), int(frames)) for number, frames in data["others"])
    rest = {key: data[key] for key in ("verifier", "verification_set")}
    return Situation(tuple(data["private"]), app, others, tuple(data["apps"]), **rest)


def _verification(data: Mapping[str, Any]) -> Verification:
    results = (_fields(AttackResult, row) | {"interval": Interval(*row["interval"])} for row in data["results"])
    certificates = (Certificate(**_fields(Certificate, row)) for row in data["certificates"])
    attacks = tuple(AttackResult(**row) for row in results)
    return Verification(Setting(**data["setting"]), attacks, data["ending"], tuple(certificates), {})


def _fields(kind: Any, row: Mapping[str, Any]) -> dict[str, Any]:
    return {part.name: row[part.name] for part in fields(kind) if part.name in row}


_ENTRIES = 2  # of the log, by every verification: the try and the decision

PROPOSAL, FEWER, REVIEW, ODOMETER = "proposal", "fewer", "review", "odometer"
ASKING = (PROPOSAL, FEWER)  # jobs at whose end a person is asked

Payload = Mapping[str, Any]
Cancelled = Callable[[], bool]


class Duties:
    """The handlers of the gateway's own jobs."""

    def __init__(self, platform: Platform, proposals: Proposals, log: AuditLog) -> None:
        self._platform, self._proposals, self._log = platform, proposals, log
        self._seconds = 0.0  # the last verification took

    @property
    def handlers(self) -> dict[str, Handler]:
        return {PROPOSAL: self.verify, FEWER: self.verify, REVIEW: self.review, ODOMETER: self.odometer}

    def verify(self, payload: Payload, progress: Progress, cancelled: Cancelled) -> dict[str, Any]:
        """Verify what an app asks for, or fewer details of what it asked before; what cannot be verified is denied. The
        size of the log, which apps see, tells nothing: every job adds two entries, and takes as long as the last one
        did if it has nothing to verify.
        """
        job, before, begun = payload["job"], payload.get("before"), monotonic()
        progress("verifying", 0, None)
        with acting(None, proposal=job) as now:
            try:
                if before is not None:
                    found = self._platform.fewer_details(self._proposals.get(before), progress=progress)
                else:
                    sift = self._proposals.sent(job) if payload["mode"] == "unincluded" else None
                    budget = {name: payload[name] for name in ("frames", "then", "personal") if name in payload}
                    found = self._platform.propose(payload["person"], payload["app"], sift, **budget, progress=progress)
            except (InputError, PrivacyError) as error:
                if "try" not in now.recorded:
                    self._pass_time(begun, progress)
                self._fill_up(now, job)
                return {"verdict": "denied", "sentence": str(error)}
            self._fill_up(now, job)
        self._seconds = monotonic() - begun
        self._proposals.keep(job, found)
        return {"verdict": found.verdict, "sentence": found.sentence}

    def _fill_up(self, now: Acting, job: str) -> None:
        for _ in range(_ENTRIES - len(now.recorded)):
            self._log.append(PLATFORM, "verified", {"proposal": job})

    def _pass_time(self, begun: float, progress: Progress) -> None:
        while (left := begun + self._seconds - monotonic()) > 0:
            sleep(min(left, 1.0))
            progress("verifying", 0, None)

    def review(self, payload: Payload, progress: Progress, cancelled: Cancelled) -> dict[str, Any]:
        """Verify a person's suspended grants again, or revoke them."""
        progress("reviewing", 0, None)
        with acting(None, review=payload["job"]):
            found = self._platform.review(payload["person"], progress=progress)
        return {
            "kept": [grant.number for grant in found.kept],
            "revoked": [grant.number for grant in found.revoked],
        }

    def odometer(self, payload: Payload, progress: Progress, cancelled: Cancelled) -> dict[str, Any]:
        progress("measuring", 0, None)
        return asdict(self._platform.odometer(payload["person"], progress=progress))


class Reviews:
    """Queues reviews."""

    def __init__(self, platform: Platform, jobs: Jobs) -> None:
        self._platform, self._jobs = platform, jobs

    def of(self, person: str, owner: str) -> Job:
        """Queue a review of a person's grants, unless one is queued; one that runs may have begun too early."""
        for job in self._jobs.find([REVIEW], about={"person": person}, states=["queued"], limit=1):
            return job
        return self._jobs.submit(REVIEW, owner, {"person": person})

    def of_suspended(self, owner: str) -> tuple[Job, ...]:
        grants = (grant for grant in self._platform.grants() if grant.live and not self._platform.holds(grant))
        return tuple(self.of(person, owner) for person in dict.fromkeys(grant.person for grant in grants))


Answer = Literal["allow", "fewer", "refuse"]

MOST_FRAMES = 1000  # in one budget


class Asking:
    """What apps ask for, and what people answer."""

    def __init__(self, platform: Platform, proposals: Proposals, jobs: Jobs, log: AuditLog) -> None:
        self._platform, self._proposals, self._jobs, self._log = platform, proposals, jobs, log
        self._answering = threading.Lock()

    def propose(
        self,
        app: Principal,
        person: str,
        sift: Mapping[str, Any] | None,
        frames: int,
        then: Then,
        personal: float | None = None,
    ) -> Job:
        """Queue the verification of what an app asks for; what is wrong with the request itself is said at once. A name
        that nobody has is not: the job is denied, as it would be for another reason.
        """
        if ReleaseBudget(frames, then).frames > MOST_FRAMES:
            raise InputError(f"a budget has {MOST_FRAMES} frames at most; got {frames}.")
        if then != "permanent":
            self._refuse_too_few(app, person, frames)
        job, mode = new_id(), "included" if sift is None else "unincluded"
        payload = {"person": person, "app": app.name, "mode": mode, "frames": frames, "then": then}
        if personal is not None:
            payload["personal"] = personal
        if sift is not None:
            data = self._platform.data
            parsed = sift_from_json(sift, pipeline=data.pipeline, dimension=data.dimension)
            self._proposals.keep_sent(job, parsed)
            payload["sift"] = parsed.digest
        self._log.append(app.id, "propose", {**payload, "proposal": job})
        return self._jobs.submit(PROPOSAL, app.id, payload, id=job)

    def answer(self, owner: Principal, job: Job, answer: Answer) -> Job:
        """Carry out a person's answer, and note it with the job; the same answer again changes nothing."""
        if answer not in get_args(Answer):
            raise UnknownNameError("answer", str(answer), get_args(Answer))
        with self._answering, self._proposals.locked():
            return self._answer(owner, self._jobs.get(job.id), answer)

    def _answer(self, owner: Principal, job: Job, answer: Answer) -> Job:
        result = job.result or {}
        given = result.get("answer")
        if job.state != "done" or given not in (None, answer):
            state = f"it was answered already: {given}" if given else f"it is {job.state}"
            raise InputError(f"this proposal cannot be answered so: {state}.")
        if given is not None:
            return job
        if result["verdict"] == "denied":
            raise InputError("this could not be verified: there is nothing to answer.")
        return self._jobs.amend(job.id, answer=answer, **self._answered(owner, job, answer))

    def _refuse_too_few(self, app: Principal, person: str, frames: int) -> None:
        """Refuse a budget that is used up already; the app knows what it has got."""
        mine = (grant for grant in self._platform.grants() if (grant.person, grant.app) == (person, app.name))
        used = sum(self._platform.released(grant) for grant in mine)
        if frames <= used:
            raise InputError(f"this app has got {used} frames of this person already; ask for more than that in all.")

    def _answered(self, owner: Principal, job: Job, answer: Answer) -> dict[str, Any]:
        proposal = self._proposals.of(job)
        if answer == "allow":
            return {"grant": self._allowed(owner, job.id, proposal)}
        if answer == "fewer":
            payload = {**job.payload, "mode": "unincluded", "before": job.id}
            self._log.append(owner.id, "ask for fewer details", {"proposal": job.id, "app": proposal.app})
            return {"next": self._jobs.submit(FEWER, job.owner, payload).id}
        with acting(owner, proposal=job.id):
            self._platform.refuse(proposal)
        return {}

    def _allowed(self, owner: Principal, job: str, proposal: Proposal) -> int:
        """Return the grant that a proposal becomes, or became before a kill."""
        same = (proposal.app, proposal.sift.digest, proposal.budget)
        for grant in self._platform.grants(owner.name):
            if grant.live and (grant.app, grant.sift, grant.budget) == same:
                return grant.number
        try:
            with acting(owner, proposal=job):
                return self._platform.allow(proposal).number
        except PrivacyError as error:
            self._log.append(owner.id, "refuse grant", {"proposal": job, "reason": str(error)})
            raise
