"""`blindsight serve`: the trusted service and its page, who may ask it, and a check of its log."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
from click.exceptions import Exit
from rich.text import Text

from blindsight.cli import options
from blindsight.cli.command import argument, command, flag, group, option, several
from blindsight.cli.options import show, table, terminal_progress
from blindsight.errors import InputError, MessageError, StorageError, UnknownNameError

if TYPE_CHECKING:  # the service brings libraries of its own extra
    from blindsight.client import Client
    from blindsight.service.principals import Principal, Principals
    from blindsight.service.store import Database

owners = group("owner", "An owner's own: pictures, answers to proposals, the token, and the end of it all.")
tokens = group("token", "Who may ask a service, for the operator on its machine; it may run meanwhile.")

named = argument("name", "Name or id, as `token list` shows them.")
witnesses = several(
    "--witness", help="Who remembers the log's head: a file on another disk, or the URL of another service. Repeatable."
)
hours = option("--hours", default=72, min=1, max=24 * 365, help="How long the code may be redeemed.")
identity = option("--identity", "-i", default=Path("blindsight.identity"), help="File that `blindsight enrol` wrote.")


@options.folder
@option("--host", default="127.0.0.1", help="Address to listen on.")
@option("--port", default=8420, help="Port to listen on; 0 takes a free one.", min=0, max=65535)
@options.database
@option(
    "--verification",
    default="faces",
    help="Labelled pictures that sifts are judged on: a folder of classes, a CSV table, or a name.",
)
@options.path
@several("--unchanging", help="An attribute that never changes, for permanent symbols. Repeatable.")
@option("--people", type=Path, help="Photos of people, a folder for each owner's name, without labels: taken in once.")
@option("-n", "--count", type=int, help="At most this many of its pictures; of faces 5,000.", min=1)
@options.features
@options.attackers("modern", "Who judges at first: the paper's five, fifteen, or a quick three.")
@option("--certificate", type=Path, help="TLS certificate, a PEM file.")
@option("--key", type=Path, help="Its key, a PEM file without a password.")
@flag("--insecure-without-tls", help="Listen in a network without TLS: tokens and pictures are readable.")
@flag("--page/--no-page", help="Show the page, or answer the API alone.", default=True)
@option("--requests-per-minute", default=600, help="Of one principal, and of one address.", min=1)
@option(
    "--processes",
    default=1,
    help="Processes that serve; with more than one the API alone, without the page.",
    min=1,
    max=64,
)
@witnesses
@flag("--witness-new", help="The service that is named as witness was never told of this log.")
@option(
    "--verdict-seconds",
    default=60.0,
    help="Apps are told verdicts after a whole number of these, or the time would tell them.",
    min=0.1,
)
@option("--proxy", help="Address of a proxy whose X-Forwarded-For is believed.")
@option(
    "--key-folder",
    type=Path,
    help="Where keys lie while grants are live: best a tmpfs, never backed up. Without it FOLDER-keys.",
)
@options.seed
def serve(
    folder: Path,
    verification: str,
    path: Path | None,
    unchanging: tuple[str, ...],
    people: Path | None,
    count: int | None,
    features: str,
    attackers: options.Attackers,
    insecure_without_tls: bool,
    page: bool,
    witness: tuple[str, ...],
    seed: int,
    **listening: Any,
) -> None:
    """Start the service; Ctrl-C stops it, and unfinished work goes on at the next start."""
    _need_extra()
    from blindsight.data import pipeline
    from blindsight.service.api import run_service
    from blindsight.service.gateway import Gateway
    from blindsight.service.settings import ServiceSettings
    from blindsight.service.verification import PER_PERSON, collection, shortages
    from blindsight.sift.trial import QUICK
    from blindsight.sift.verify import Verifier

    settings = ServiceSettings(folder, without_tls=insecure_without_tls, witnesses=witness, **listening)

    def open_gateway() -> Gateway:
        with terminal_progress() as progress:
            own_choice = verification == "faces" and count is None  # then, and of pixels, the service chooses
            drawn: dict[str, Any] = {"pictures_per_person": PER_PERSON} if verification == "faces" else {}
            shared: dict[str, Any] = {"random_state": seed, "progress": progress}
            gateway = Gateway.open(
                settings,
                None if own_choice else collection(verification, path=path, count=count, **shared, **drawn),
                None if features == "pixels" else pipeline(features, random_state=seed),
                verifier=Verifier(QUICK if attackers == "quick" else attackers, random_state=seed),
                unchanging=unchanging or (),
                **shared,
            )
            told = shortages(gateway.platform.data, gateway.platform.verifier)
            try:
                told += () if people is None else gateway.cameras.take_in(people, progress=progress)
            except BaseException:
                gateway.close()
                raise
        for sentence in told:
            sys.stderr.write(f"{sentence}\n")
        return gateway

    run_service(settings, open_gateway, _announce, page=page)
    sys.stderr.write("Stopped. Unfinished work goes on at the next start.\n")


@argument("export", "A log that was exported; without it the service's own.", type=Path, required=False)
@options.folder
@options.database
@several("--head", help="A head noted earlier, `size:root` or a file (also a receipt), which the log must continue.")
@option("--proof", type=Path, help="A consistency proof of the service: checks two --head against each other, alone.")
def verify_log(
    export: Path | None, folder: Path, database: str | None, head: tuple[str, ...], proof: Path | None
) -> None:
    """Check a service's log, or that it continues earlier heads. Exit code 0: nothing was altered; 1: something was."""
    known = [_noted_head(one) for one in head or ()]
    if proof is not None:
        _check_heads(known, proof)
        return
    _need_extra()
    from blindsight.service.log import open_log, verify_export
    from blindsight.service.witnesses import HeadFile

    if export is not None:
        check = verify_export(export, known_heads=known)
    else:
        with _opened(folder, database) as opened:
            log = open_log(folder, opened)
            own = HeadFile(folder / "log.head").last(log.key)
            check = log.verify(known_heads=[*known, *([] if own is None else [str(own)])])
    if check.ok:
        noted = f"{check.entries}:{check.head}"
        show(asdict(check), f"The log holds: {check.entries} entries, none altered.", f"Its head: {noted}")
        return
    reason = f"The log was altered: {check.reason}"
    show(asdict(check), Text(reason, style="bold red"), f"The {check.entries} entries before hold.")
    raise Exit(1)


@argument("target", "File to write: all state of the service, without keys of live grants.", type=Path)
@options.folder
@options.database
def backup(target: Path, folder: Path, database: str | None) -> None:
    """Write everything a service keeps to one file; it may run meanwhile."""
    _need_extra()
    from blindsight.service.backup import back_up

    _check_there(folder, database)
    head = back_up(target, folder, _url(folder, database))
    show(
        {"backup": str(target), "head": str(head)},
        f"{target} holds the log up to {head.size} entries. Its head: {head}",
    )


@argument("source", "A file that `blindsight backup` wrote.", type=Path)
@options.folder
@options.database
@witnesses
@flag("--replace", "in_place", help="In place of what is there; the folder is kept aside.")
def restore(source: Path, folder: Path, database: str | None, witness: tuple[str, ...], in_place: bool) -> None:
    """Put a backup back. It is logged with what it gives up, and what budgets had left counts as used unless a
    witness shows that the backup is the newest state.
    """
    _need_extra()
    from blindsight.service import backup as backups

    done = backups.restore(source, folder, _url(folder, database), witnesses=witness or (), replace=in_place)
    lost = ", ".join(done.given_up) or "none that is known"
    show(
        asdict(done),
        f"Restored: the log has {done.entries} entries. Later heads that were given up: {lost}.",
        f"Grants that ended, with what their budgets had left: {done.used_up}.",
        f"People who stay erased: {', '.join(done.erased) or 'none that is known'}.",
        "Unless a witness shows that this is the newest state, cameras, open codes and all tokens but the operators' "
        "have ended: enrol everybody again.",
    )


@argument("url", "Address of the service.")
@argument("code", "The code that its operator gave you.")
@identity
def enrol(url: str, code: str, identity: Path) -> None:
    """Redeem a code: make your token and, for an owner, the key for which your pictures are sealed, in one file.

    Keep copies of that file in a safe place: who loses the key loses the pictures, and nobody can help.
    """
    from blindsight.client import enrol as redeem
    from blindsight.files import check_writable

    if identity.exists():
        raise InputError(f"{identity} is there already, and may hold a key. Name another --identity.")
    check_writable(identity.absolute().parent)
    made = redeem(url, code)
    made.save(identity)
    lines = [f"You are {made.name} ({made.role}) at {url}. Your token is in {identity}."]
    if made.key is not None:
        lines.append("So is your key: copy the file to a safe place. Who loses the key loses the pictures.")
    show({"name": made.name, "role": made.role, "identity": str(identity)}, *lines)


@command(owners, "send", example="owner send face.png --identity ann.identity")
@argument("pictures", "Picture files.", type=click.Path(exists=True, dir_okay=False, path_type=Path), many=True)
@identity
def send_pictures(pictures: tuple[Path, ...], identity: Path) -> None:
    """Send pictures of yours; the service seals them for your key."""
    with _client(identity) as client:
        sent = {str(path): client.add_frame(path.read_bytes()) for path in pictures}
    show({"frames": sent}, f"{len(sent)} pictures were sent and sealed.")


@command(owners, "pictures", example="owner pictures out/mine --identity ann.identity")
@argument("out", "Folder for the pictures, opened with your key.", type=Path)
@identity
def take_pictures(out: Path, identity: Path) -> None:
    """Get your pictures back, as PNG files that only you can read."""
    from blindsight.files import atomic_writer

    opened: list[str] = []
    with _client(identity) as client:
        frames = client.frames()
        for frame in frames:
            with suppress(MessageError), atomic_writer(out / f"{frame}.png", private=True) as stream:
                stream.write(client.picture(frame))
                opened.append(frame)
    closed = len(frames) - len(opened)
    lost = (
        [f"{closed} are sealed for another key than yours: one of an earlier enrolment opens them."] if closed else []
    )
    show(
        {"folder": str(out), "frames": opened, "sealed_for_another_key": closed},
        f"{len(opened)} pictures are in {out}.",
        *lost,
    )


@command(owners, "renew", example="owner renew --identity ann.identity")
@identity
def renew_pictures(identity: Path) -> None:
    """Send those pictures once more whose features are of another pipeline than the service has now."""
    with _client(identity) as client:
        count = client.renew_frames()
    show({"renewed": count}, f"{count} pictures were sent once more.")


@command(owners, "proposals", example="owner proposals --identity ann.identity")
@identity
def list_proposals(identity: Path) -> None:
    """Show what apps ask for."""
    with _client(identity) as client:
        found = client.proposals()
    rows = [(one.job, one.app, one.verdict or one.state, one.answer or "", one.sentence or "") for one in found]
    shown = table("Proposals", ("job", "app", "verdict", "answer", ""), rows) if rows else "No app has asked yet."
    show({"proposals": [asdict(one) for one in found]}, shown)


@command(owners, "answer", example="owner answer JOB allow --identity ann.identity")
@argument("job", "The proposal, as `owner proposals` shows it.")
@argument("said", "What you say to it.", choices=("allow", "fewer", "refuse"))
@identity
def answer_proposal(job: str, said: Literal["allow", "fewer", "refuse"], identity: Path) -> None:
    """Answer a proposal. To allow it hands over the keys of your features until your last grant ends."""
    with _client(identity) as client:
        found = client.answer(job, said)
    show(asdict(found), f"Answered: {found.answer}." + (f" Grant {found.grant}." if found.grant else ""))


@command(owners, "keys", example="owner keys --identity ann.identity")
@identity
def hand_over_keys(identity: Path) -> None:
    """Hand over the keys of your features once more, after the service's machine was restarted."""
    with _client(identity) as client:
        client.hand_over_keys()
    show({"handed_over": True}, "The keys of your features were handed over.")


@command(owners, "rotate", example="owner rotate --identity ann.identity")
@identity
def rotate_token(identity: Path) -> None:
    """Replace your token, of any role; the file gets the new one, and the old one opens nothing any more."""
    from blindsight.client import Client, Identity

    mine = Identity.load(identity)
    with Client.of(mine) as client:
        changed = replace(mine, token=client.rotate_token())
    identity.unlink()
    changed.save(identity)
    show({"identity": str(identity)}, f"{identity} holds your new token.")


@command(owners, "erase", example="owner erase --identity ann.identity")
@argument("person", "Whom, where an operator asks; an owner erases themself.", required=False)
@identity
@flag("--yes", help="Do not ask.")
def erase_person(person: str | None, identity: Path, yes: bool) -> None:
    """Remove frames, features, keys and grants of a person for ever; the log stays, and still verifies."""
    with _client(identity) as client:
        if not yes:
            click.confirm(f"Remove all of {person or client.me.name} for ever?", abort=True)
        count = client.erase(person)
    show({"frames": count}, f"{count} frames were removed, and all keys. The token opens nothing any more.")


@command(tokens, "create", example="token create ann owner --folder out/service")
@argument("name", "Name of a new person, app or operator.")
@argument("role", "What the token is for.", choices=("owner", "app", "operator"))
@options.token_days
@hours
@options.folder
@options.database
def create_token(
    name: str,
    role: Literal["owner", "app", "operator"],
    days: int | None,
    hours: int,
    folder: Path,
    database: str | None,
) -> None:
    """Add somebody and print the code with which they make their token (`blindsight enrol`), this once."""
    _need_extra()
    from blindsight.service.models import addressable

    with _principals(folder, database, "create principal") as (principals, in_days, note):
        made, code = principals.create(addressable(name), role, expires=in_days(days), hours=hours)
        note(made)
    _show_code(made, str(code))


@command(tokens, "enrol", example="token enrol ann --folder out/service")
@named
@options.token_days
@hours
@options.folder
@options.database
def issue_code(name: str, days: int | None, hours: int, folder: Path, database: str | None) -> None:
    """Issue another code for who lost a token or a key; the old token opens nothing any more. An owner's grants end,
    and pictures of before stay sealed for the key of before.
    """
    reason = "another enrolment code was issued for the owner"
    with _principals(folder, database, "issue enrolment code", reason) as (principals, in_days, note):
        known = _found(principals, name)
        code = principals.issue_code(known.id, hours=hours, expires=in_days(days))
        note(known)
    _show_code(known, str(code))


@command(tokens, "revoke", example="token revoke ann --folder out/service")
@named
@options.folder
@options.database
def revoke_token(name: str, folder: Path, database: str | None) -> None:
    """Make a token worthless, for ever."""
    with _principals(folder, database, "revoke principal", "the owner's token was revoked") as (principals, _, note):
        known = _found(principals, name)
        principals.revoke(known.id)
        note(known)
    show({"revoked": known.id, "name": known.name}, f"The token of {known.name} opens nothing any more.")


@command(tokens, "list", example="token list --folder out/service")
@options.folder
@options.database
def list_tokens(folder: Path, database: str | None) -> None:
    """Show everybody; tokens themselves are kept nowhere."""
    _need_extra()
    from blindsight.service.log import open_log
    from blindsight.service.principals import Principals

    with _opened(folder, database) as opened:
        open_log(folder, opened)
        known = Principals(opened).list()
    columns = ("id", "name", "role", "created", "expires", "revoked")
    document = [{column: _text(getattr(one, column)) for column in columns} for one in known]
    rows = [
        [*row[:3], *(moment[:16].replace("T", " ") for moment in row[3:])]
        for row in (list(one.values()) for one in document)
    ]
    show({"principals": document}, table(f"Who may ask {folder} (times in UTC)", columns, rows))


def _noted_head(text: str) -> str:
    """Return a head as `size:root`; a file must hold a signed one, or a receipt that proves what it says."""
    if not Path(text).is_file():
        return text
    from blindsight.crypto.merkle import TreeHead, check_receipt

    try:
        document = json.loads(Path(text).read_text())
        return str(check_receipt(document)[1] if "record" in document else TreeHead.from_dict(document))
    except (ValueError, TypeError):
        raise MessageError(f"{text} holds no head of a log, and no receipt.") from None


def _check_heads(heads: list[str], proof: Path) -> None:
    """Check that the log of one head is the beginning of that of another, by what the service proved."""
    from blindsight.crypto.merkle import consistent

    try:
        (first, before), (second, after) = sorted((int(size), root) for size, root in (one.split(":") for one in heads))
        parts = [bytes.fromhex(part) for part in json.loads(proof.read_text())["proof"]]
        holds = consistent(first, bytes.fromhex(before), second, bytes.fromhex(after), parts)
    except (ValueError, KeyError, TypeError, OSError):
        raise InputError("a proof of consistency is a JSON file of the service, about two --head.") from None
    show(
        {"ok": holds, "first": first, "second": second},
        f"The log of {first} entries is {'' if holds else 'not shown to be '}the beginning of {second}.",
    )
    if not holds:
        raise Exit(1)


def _client(identity: Path) -> "Client":
    from blindsight.client import Client, Identity

    return Client.of(Identity.load(identity))


def _need_extra() -> None:
    from blindsight.extras import require

    for library in ("sqlalchemy", "fastapi", "uvicorn", "python_multipart"):
        require(library, extra="service", purpose="a service")


def _announce(address: str, token: str | None) -> None:
    lines = [f"The service answers at {address} (Ctrl-C stops it)."]
    if token:
        lines += [
            "This is its first start. The operator's token, shown this once only:",
            f"\n    {token}\n",
            "It makes codes for people and apps, and opens the page: open the address, and log in with it.",
        ]
    document = {"url": address} | ({"token": str(token)} if token else {})
    show(document, *lines)
    sys.stdout.flush()


def _show_code(whose: "Principal", code: str) -> None:
    document = {"id": whose.id, "name": whose.name, "role": whose.role, "code": code}
    show(
        document,
        f"The code of {whose.name} ({whose.role}), shown this once:",
        f"\n    {code}\n",
        "Give it to them alone: who redeems it first (`blindsight enrol URL CODE`, or the page) makes the token.",
    )


@contextmanager
def _opened(folder: Path, database: str | None) -> "Iterator[Database]":
    """Open the database of a service that has run before; a service that never ran is not made by looking at it."""
    from blindsight.service.store import open_database

    _check_there(folder, database)
    opened = open_database(_url(folder, database))
    try:
        yield opened
    finally:
        opened.close()


def _check_there(folder: Path, database: str | None) -> None:
    if database is None and not (folder / "service.db").is_file():
        raise StorageError(f"there is no service in {folder}. Start one with `blindsight serve`, or name its --folder.")


def _url(folder: Path, database: str | None) -> str:
    from blindsight.service.settings import ServiceSettings

    return ServiceSettings(folder, database=database).database_url


@contextmanager
def _principals(
    folder: Path, database: str | None, action: str, ending: str | None = None
) -> "Iterator[tuple[Principals, Any, Any]]":
    """Change who may ask, and note it in the log: both or neither; `ending` is why grants and cameras end, too."""
    _need_extra()
    from blindsight.service.gateway import end_on_machine
    from blindsight.service.log import MACHINE, open_log
    from blindsight.service.models import in_days
    from blindsight.service.principals import Principals, told_of

    with _opened(folder, database) as opened:
        log = open_log(folder, opened)

        def note(whom: "Principal") -> None:
            log.append(MACHINE, action, told_of(whom))
            if ending is not None:
                end_on_machine(log, opened, whom, ending)

        with opened.session():
            yield Principals(opened, clock=log.now), in_days, note


def _found(principals: "Principals", name: str) -> "Principal":
    known = principals.list()
    for one in known:
        if name in (one.id, one.name):
            return one
    raise UnknownNameError("principal", name, [one.name for one in known])


def _text(value: Any) -> str:
    return value.isoformat(timespec="seconds") if isinstance(value, datetime) else value or ""
