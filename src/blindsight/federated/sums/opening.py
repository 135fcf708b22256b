"""How a run across machines begins: users are waited for and enrol, the key generator opens the run, letters go out.

Whoever refuses the terms or does not answer is left out, and the rest begin anew under another name: keys are made for
those who take part and nobody else.
"""

import hashlib
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from blindsight.crypto.wire import Message, decode, encode
from blindsight.errors import InputError, MessageError, PrivacyError
from blindsight.federated.courier import Courier
from blindsight.federated.home import Home
from blindsight.federated.identity import PublicIdentity
from blindsight.federated.sums.aggregatorend import AGGREGATOR_ENDS
from blindsight.federated.sums.messages import Enrolment, Letters, Name, Opening, Refusal, SetUp
from blindsight.federated.sums.runterms import RunTerms
from blindsight.federated.sums.server import Patience
from blindsight.federated.sums.serverrun import ServerRun
from blindsight.federated.sums.userdesk import ENROLMENT, SETUP
from blindsight.files import storage_errors
from blindsight.learn.dphe.storage import read_state, write_state
from blindsight.learn.dphe.terms import AGGREGATOR, KEY_GENERATOR
from blindsight.learn.owners import LEAST_OWNERS

MakeTerms = Callable[[str, tuple[str, ...]], RunTerms]
"""Return the terms of a run with this name and these users."""

Identities = Callable[[], Mapping[str, PublicIdentity]]
"""Return the members that can be reached now, by name, with the keys they have shown."""


class Reception(Courier, Protocol):
    """A courier that knows who its parties are (`flower.gridcourier`)."""

    def identities(self) -> Mapping[str, PublicIdentity]: ...

    def complaints(self) -> str:
        """Say who was not let in, and why."""
        ...


_POLL_SECONDS = 0.5


class _Label(Message, name="federated/label.1"):
    run: Name
    seed: int


def find_run(home: Home, label: str, *, seed: int) -> ServerRun | None:
    """Return the run that this home's server has set up before under this label and seed; None if it has none."""
    path = _label_path(home, label)
    if not path.exists():
        return None
    kept = read_state(path, _Label)
    if kept.seed != seed:
        raise InputError(f"the run {label!r} began with seed {kept.seed}; got {seed}. Give the same, or another label.")
    return ServerRun.load(home, kept.run)


def label_run(home: Home, label: str, run: ServerRun, *, seed: int) -> None:
    """Let a run be found again by this label; an earlier run of that label is not."""
    write_state(_label_path(home, label), _Label(run.terms.run, seed))


def forget_labels(home: Home, run: str) -> None:
    """Let the labels of a run name none: the next under such a label begins anew."""
    for path in (home.path / "labels").glob("[0-9a-f]*"):
        if read_state(path, _Label).run == run:
            with storage_errors("delete", path):
                path.unlink()


def _label_path(home: Home, label: str) -> Path:
    return home.path / "labels" / hashlib.sha256(label.encode()).hexdigest()[:32]


def wait_for_users(
    identities: Identities, *, wanted: int, seconds: float, keyed: bool = True, complaints: Callable[[], str] = str
) -> tuple[str, ...]:
    """Wait until `wanted` users and the key generator are there; with fewer after so many seconds, it raises."""
    until = time.monotonic() + seconds
    while True:
        here = identities()
        users = tuple(sorted(name for name in here if name not in (AGGREGATOR, KEY_GENERATOR)))
        if len(users) >= wanted and (KEY_GENERATOR in here or not keyed):
            return users
        if time.monotonic() > until:
            missing = "" if KEY_GENERATOR in here or not keyed else " The key generator is not there."
            raise PrivacyError(
                f"{len(users)} of {wanted} users are there after {seconds:g} seconds.{missing}{complaints()}"
            )
        time.sleep(min(_POLL_SECONDS, seconds))


def gather_run(
    home: Home,
    courier: Reception,
    make_terms: MakeTerms,
    patience: Patience,
    *,
    wanted: int,
    seconds: float,
    keyed: bool,
    warn: Callable[[str], object],
) -> ServerRun:
    """Wait for users and set up a run with those who agree; `warn` is told of everybody who does not take part."""
    wait_for_users(courier.identities, wanted=wanted, seconds=seconds, keyed=keyed, complaints=courier.complaints)
    if complaints := courier.complaints():
        warn(f"Not let in:{complaints}")
    run, refused = open_run(home, courier, courier.identities(), make_terms, patience)
    for name, sentence in sorted(refused.items()):
        warn(f"{name} does not take part: {sentence}")
    return run


def open_run(
    home: Home, courier: Courier, identities: Mapping[str, PublicIdentity], make_terms: MakeTerms, patience: Patience
) -> tuple[ServerRun, dict[str, str]]:
    """Set up a run with all users among `identities` who agree; return it, and why others do not take part."""
    users = tuple(sorted(name for name in identities if name not in (AGGREGATOR, KEY_GENERATOR)))
    refused: dict[str, str] = {}
    while len(users) >= LEAST_OWNERS:
        terms = _made_terms(make_terms, users, refused)
        if terms.scheme == "plain":
            _, complaints = _enrol(courier, terms, b"", patience)
            if not complaints:
                own = home.identity.public.to_bytes()  # nobody vouches for it
                return ServerRun.create(home, terms, b"", dict.fromkeys(terms.users, own)), refused
        else:
            if KEY_GENERATOR not in identities:
                raise PrivacyError(f"a run of {terms.scheme} needs the key generator, which is not there.")
            letters, complaints = _enrol(courier, terms, identities[KEY_GENERATOR].to_bytes(), patience)
            if not complaints:
                opened = _opened(home, courier, identities, terms, letters, patience)
                if isinstance(opened, ServerRun):
                    return opened, refused
                complaints = opened
        refused |= complaints
        users = tuple(user for user in users if user not in complaints)
    raise PrivacyError(f"{len(users)} users take part; a run needs {LEAST_OWNERS}.{_reasons(refused)}")


def _made_terms(make_terms: MakeTerms, users: tuple[str, ...], refused: Mapping[str, str]) -> RunTerms:
    try:
        return make_terms(secrets.token_hex(8), users)
    except InputError as error:
        raise InputError(f"{len(users)} users cannot begin a run: {error}{_reasons(refused)}") from None


def _reasons(refused: Mapping[str, str]) -> str:
    return "".join(f" {user}: {sentence}" for user, sentence in sorted(refused.items()))


def _enrol(
    courier: Courier, terms: RunTerms, generator: bytes, patience: Patience
) -> tuple[dict[str, bytes], dict[str, str]]:
    """Ask users to take part: return the letters of those who do, and why others do not."""
    tickets = {courier.send(user, "enrol", (terms.to_bytes(), generator)): user for user in terms.users}
    letters, complaints = {}, dict.fromkeys(terms.users, "it did not answer in time.")
    for ticket, reply in courier.collect(tickets, seconds=patience.step):
        user = tickets[ticket]
        if reply.error:
            complaints[user] = reply.error
        elif len(reply.parts) != 1:
            complaints[user] = "it answered something that is no enrolment."
        else:
            letters[user] = reply.parts[0]
    return letters, {user: sentence for user, sentence in complaints.items() if user not in letters}


def _opened(
    home: Home,
    courier: Courier,
    identities: Mapping[str, PublicIdentity],
    terms: RunTerms,
    enrolments: Mapping[str, bytes],
    patience: Patience,
) -> ServerRun | dict[str, str]:
    """Let the key generator open the run, and keep its letters; or return why it refuses some users."""
    generator, own = identities[KEY_GENERATOR], home.identity
    end = AGGREGATOR_ENDS[terms.scheme](terms, home.run(terms.run))
    enrolment = encode(Enrolment(terms.digest, end.enrolment()))
    letter = own.write(enrolment, to=generator, purpose=ENROLMENT, run=terms.run)
    parties = (AGGREGATOR, *terms.users)
    shown = {**identities, AGGREGATOR: own.public}
    opening = Opening(
        terms.to_bytes(),
        parties,
        tuple(shown[party].to_bytes() for party in parties),
        (letter, *(enrolments[user] for user in terms.users)),
    )
    answer = decode(_generators_answer(courier, encode(opening), patience), Letters, Refusal)
    if isinstance(answer, Refusal):
        refused = dict(zip(answer.parties, answer.sentences, strict=False))
        if not refused or not set(refused) <= set(terms.users):
            raise PrivacyError(f"the key generator refused to open the run:{_reasons(refused)}")
        return refused
    if not isinstance(answer, Letters) or len(answer.letters) != len(parties):
        raise MessageError("the key generator did not write to everybody.")
    letter = own.read(answer.letters[0], sender=generator, purpose=SETUP, run=terms.run)
    setup = decode(letter, SetUp).content
    end.accept(setup)
    return ServerRun.create(home, terms, setup, dict(zip(terms.users, answer.letters[1:], strict=True)))


def _generators_answer(courier: Courier, opening: bytes, patience: Patience) -> bytes:
    """Ask the key generator to open a run; one that is away is waited for, and asked again."""
    until = time.monotonic() + patience.generator
    while True:
        if KEY_GENERATOR in courier.present():
            ticket = courier.send(KEY_GENERATOR, "open", (opening,))
            for _, reply in courier.collect([ticket], seconds=patience.step):
                if reply.error or len(reply.parts) != 1:
                    raise MessageError(f"the key generator refused to open the run: {reply.error}")
                return reply.parts[0]
        if time.monotonic() > until:
            raise MessageError("the key generator did not answer.")
        time.sleep(patience.pause)
