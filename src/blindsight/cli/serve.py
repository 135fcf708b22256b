"""`blindsight serve`: the trusted service and its page, who may ask it, and a check of its log."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.text import Text
from typer import Argument, Option

from blindsight.cli import options
from blindsight.cli.options import Commands, show, table, terminal_progress
from blindsight.errors import InputError, MessageError, StorageError, UnknownNameError

if TYPE_CHECKING:  # the service brings libraries of its own extra
    from blindsight.client import Client
    from blindsight.service.principals import Principal, Principals
    from blindsight.service.store import Database

owners = Commands(help="An owner's own: pictures, answers to proposals, the token, and the end of it all.")
tokens = Commands(help="Who may ask a service, for the operator on its machine; it may run meanwhile.")

NameArgument = Annotated[str, Argument(help="Name or id, as `token list` shows them.")]
WitnessOption = Annotated[
    list[str] | None,
    Option(help="Who remembers the log's head: a file on another disk, or the URL of another service. Repeatable."),
]
HoursOption = Annotated[int, Option(help="How long the code may be redeemed.", min=1, max=24 * 365)]
IdentityOption = Annotated[Path, Option("--identity", "-i", help="File that `blindsight enrol` wrote.")]
FOLDER = Path("out/service")
IDENTITY = Path("blindsight.identity")


def serve(
    folder: options.FolderOption = FOLDER,
    host: Annotated[str, Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Option(help="Port to listen on; 0 takes a free one.", min=0, max=65535)] = 8420,
    database: options.DatabaseOption = None,
    verification: Annotated[
        str, Option(help="Labelled pictures that sifts are judged on: a folder of classes, a CSV table, or a name.")
    ] = "faces",
    path: options.PathOption = None,
    unchanging: Annotated[
        list[str] | None, Option(help="An attribute that never changes, for permanent symbols. Repeatable.")
    ] = None,
    people: Annotated[
        Path | None, Option(help="Photos of people, a folder for each owner's name, without labels: taken in once.")
    ] = None,
    count: Annotated[
        int | None, Option("-n", "--count", help="At most this many of its pictures; of faces 5,000.", min=1)
    ] = None,
    features: options.FeaturesOption = "pixels",
    attackers: Annotated[
        options.Attackers, Option(help="Who judges at first: the paper's five, fifteen, or a quick three.")
    ] = "modern",
    certificate: Annotated[Path | None, Option(help="TLS certificate, a PEM file.")] = None,
    key: Annotated[Path | None, Option(help="Its key, a PEM file without a password.")] = None,
    insecure_without_tls: Annotated[
        bool,
        Option("--insecure-without-tls", help="Listen in a network without TLS: tokens and pictures are readable."),
    ] = False,
    page: Annotated[bool, Option("--page/--no-page", help="Show the page, or answer the API alone.")] = True,
    requests_per_minute: Annotated[int, Option(help="Of one principal, and of one address.", min=1)] = 600,
    processes: Annotated[
        int, Option(help="Processes that serve; with more than one the API alone, without the page.", min=1, max=64)
    ] = 1,
    witness: WitnessOption = None,
    verdict_seconds: Annotated[
        float,
        Option(help="Apps are told verdicts after a whole number of these, or the time would tell them.", min=0.1),
    ] = 60,
    proxy: Annotated[str | None, Option(help="Address of a proxy whose X-Forwarded-For is believed.")] = None,
    key_folder: Annotated[
        Path | None,
        Option(help="Where keys lie while grants are live: best a tmpfs, never backed up. Without it FOLDER-keys."),
    ] = None,
    seed: options.SeedOption = 0,
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

    settings = options.chosen(
        ServiceSettings, locals(), without_tls=insecure_without_tls, witnesses=tuple(witness or ())
    )

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


def verify_log(
    export: Annotated[Path | None, Argument(help="A log that was exported; without it the service's own.")] = None,
    folder: options.FolderOption = FOLDER,
    database: options.DatabaseOption = None,
    head: Annotated[
        list[str] | None,
        Option(help="A head noted earlier, `size:root` or a file (also a receipt), which the log must continue."),
    ] = None,
    proof: Annotated[
        Path | None, Option(help="A consistency proof of the service: checks two --head against each other, alone.")
    ] = None,
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
    raise typer.Exit(1)


def backup(
    target: Annotated[Path, Argument(help="File to write: all state of the service, without keys of live grants.")],
    folder: options.FolderOption = FOLDER,
    database: options.DatabaseOption = None,
) -> None:
    """Write everything a service keeps to one file; it may run meanwhile."""
    _need_extra()
    from blindsight.service.backup import back_up

    _check_there(folder, database)
    head = back_up(target, folder, _url(folder, database))
    show(
        {"backup": str(target), "head": str(head)},
        f"{target} holds the log up to {head.size} entries. Its head: {head}",
    )


def restore(
    source: Annotated[Path, Argument(help="A file that `blindsight backup` wrote.")],
    folder: options.FolderOption = FOLDER,
    database: options.DatabaseOption = None,
    witness: WitnessOption = None,
    in_place: Annotated[bool, Option("--replace", help="In place of what is there; the folder is kept aside.")] = False,
) -> None:
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
        f"Grants whose budget counts as used: {done.used_up}.",
    )


def enrol(
    url: Annotated[str, Argument(help="Address of the service.")],
    code: Annotated[str, Argument(help="The code that its operator gave you; of an earlier version your token.")],
    identity: IdentityOption = IDENTITY,
) -> None:
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


@owners.command("send", example="owner send face.png --identity ann.identity")
def send_pictures(
    pictures: Annotated[list[Path], Argument(help="Picture files.", exists=True, dir_okay=False)],
    identity: IdentityOption = IDENTITY,
) -> None:
    """Send pictures of yours; the service seals them for your key."""
    with _client(identity) as client:
        sent = {str(path): client.add_frame(path.read_bytes()) for path in pictures}
    show({"frames": sent}, f"{len(sent)} pictures were sent and sealed.")


@owners.command("pictures", example="owner pictures out/mine --identity ann.identity")
def take_pictures(
    out: Annotated[Path, Argument(help="Folder for the pictures, opened with your key.")],
    identity: IdentityOption = IDENTITY,
) -> None:
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


@owners.command("renew", example="owner renew --identity ann.identity")
def renew_pictures(identity: IdentityOption = IDENTITY) -> None:
    """Send those pictures once more whose features are of another pipeline than the service has now."""
    with _client(identity) as client:
        count = client.renew_frames()
    show({"renewed": count}, f"{count} pictures were sent once more.")


@owners.command("proposals", example="owner proposals --identity ann.identity")
def list_proposals(identity: IdentityOption = IDENTITY) -> None:
    """Show what apps ask for."""
    with _client(identity) as client:
        found = client.proposals()
    rows = [(one.job, one.app, one.verdict or one.state, one.answer or "", one.sentence or "") for one in found]
    shown = table("Proposals", ("job", "app", "verdict", "answer", ""), rows) if rows else "No app has asked yet."
    show({"proposals": [asdict(one) for one in found]}, shown)


@owners.command("answer", example="owner answer JOB allow --identity ann.identity")
def answer_proposal(
    job: Annotated[str, Argument(help="The proposal, as `owner proposals` shows it.")],
    said: Annotated[Literal["allow", "fewer", "refuse"], Argument(help="What you say to it.")],
    identity: IdentityOption = IDENTITY,
) -> None:
    """Answer a proposal. To allow it hands over the keys of your features until your last grant ends."""
    with _client(identity) as client:
        found = client.answer(job, said)
    show(asdict(found), f"Answered: {found.answer}." + (f" Grant {found.grant}." if found.grant else ""))


@owners.command("keys", example="owner keys --identity ann.identity")
def hand_over_keys(identity: IdentityOption = IDENTITY) -> None:
    """Register your key where the service has none; else hand over the keys of your features once more, after the
    service's machine was restarted.
    """
    with _client(identity) as client:
        if client.me.public_key is None:
            client.register_key()
            show({"registered": True}, "Your key is registered; your pictures are sealed for it.")
        else:
            client.hand_over_keys()
            show({"handed_over": True}, "The keys of your features were handed over.")


@owners.command("rotate", example="owner rotate --identity ann.identity")
def rotate_token(identity: IdentityOption = IDENTITY) -> None:
    """Replace your token, of any role; the file gets the new one, and the old one opens nothing any more."""
    from blindsight.client import Client, Identity

    mine = Identity.load(identity)
    with Client.of(mine) as client:
        changed = replace(mine, token=client.rotate_token())
    identity.unlink()
    changed.save(identity)
    show({"identity": str(identity)}, f"{identity} holds your new token.")


@owners.command("erase", example="owner erase --identity ann.identity")
def erase_person(
    person: Annotated[str | None, Argument(help="Whom, where an operator asks; an owner erases themself.")] = None,
    identity: IdentityOption = IDENTITY,
    yes: Annotated[bool, Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove frames, features, keys and grants of a person for ever; the log stays, and still verifies."""
    with _client(identity) as client:
        if not yes:
            typer.confirm(f"Remove all of {person or client.me.name} for ever?", abort=True)
        count = client.erase(person)
    show({"frames": count}, f"{count} frames were removed, and all keys. The token opens nothing any more.")


@tokens.command("create", example="token create ann owner --folder out/service")
def create_token(
    name: Annotated[str, Argument(help="Name of a new person, app or operator.")],
    role: Annotated[Literal["owner", "app", "operator"], Argument(help="What the token is for.")],
    days: options.TokenDaysOption = None,
    hours: HoursOption = 72,
    folder: options.FolderOption = FOLDER,
    database: options.DatabaseOption = None,
) -> None:
    """Add somebody and print the code with which they make their token (`blindsight enrol`), this once."""
    _need_extra()
    from blindsight.service.models import addressable

    with _principals(folder, database, "create principal") as (principals, in_days, note):
        made, code = principals.create(addressable(name), role, expires=in_days(days), hours=hours)
        note(made)
    _show_code(made, str(code))


@tokens.command("enrol", example="token enrol ann --folder out/service")
def issue_code(
    name: NameArgument,
    days: options.TokenDaysOption = None,
    hours: HoursOption = 72,
    folder: options.FolderOption = FOLDER,
    database: options.DatabaseOption = None,
) -> None:
    """Issue another code for who lost a token or a key; the old token opens nothing any more. An owner's grants end,
    and pictures of before stay sealed for the key of before.
    """
    with _principals(folder, database, "issue enrolment code") as (principals, in_days, note):
        known = _found(principals, name)
        code = principals.issue_code(known.id, hours=hours, expires=in_days(days))
        note(known)
    _show_code(known, str(code))


@tokens.command("revoke", example="token revoke ann --folder out/service")
def revoke_token(
    name: NameArgument,
    folder: options.FolderOption = FOLDER,
    database: options.DatabaseOption = None,
) -> None:
    """Make a token worthless, for ever."""
    with _principals(folder, database, "revoke principal") as (principals, _, note):
        known = _found(principals, name)
        principals.revoke(known.id)
        note(known)
    show({"revoked": known.id, "name": known.name}, f"The token of {known.name} opens nothing any more.")


@tokens.command("list", example="token list --folder out/service")
def list_tokens(folder: options.FolderOption = FOLDER, database: options.DatabaseOption = None) -> None:
    """Show everybody; tokens themselves are kept nowhere."""
    _need_extra()
    from blindsight.service.principals import Principals

    with _opened(folder, database) as opened:
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
        raise typer.Exit(1)


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
def _principals(folder: Path, database: str | None, action: str) -> "Iterator[tuple[Principals, Any, Any]]":
    """Change who may ask, and note it in the log: both or neither."""
    _need_extra()
    from blindsight.service.log import MACHINE, open_log
    from blindsight.service.models import in_days
    from blindsight.service.principals import Principals, told_of

    with _opened(folder, database) as opened:
        log = open_log(folder, opened)
        with opened.session():
            yield (
                Principals(opened, clock=log.now),
                in_days,
                lambda whom: log.append(MACHINE, action, told_of(whom)),
            )


def _found(principals: "Principals", name: str) -> "Principal":
    known = principals.list()
    for one in known:
        if name in (one.id, one.name):
            return one
    raise UnknownNameError("principal", name, [one.name for one in known])


def _text(value: Any) -> str:
    return value.isoformat(timespec="seconds") if isinstance(value, datetime) else value or ""
