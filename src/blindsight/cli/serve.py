"""`blindsight serve`: the trusted service and its page, who may ask it, and a check of its log."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.markup import escape
from typer import Argument, Option

from blindsight.cli import options
from blindsight.cli.options import Commands, show, table, terminal_progress
from blindsight.crypto.merkle import TreeHead, check_receipt, consistent
from blindsight.errors import InputError, MessageError, StorageError, UnknownNameError
from blindsight.extras import require

if TYPE_CHECKING:  # the service brings libraries of its own extra
    from blindsight.service.principals import Principal, Principals
    from blindsight.service.store import Database

tokens = Commands(help="Who may ask a service, for the operator on its machine; it may run meanwhile.")

NameArgument = Annotated[str, Argument(help="Name or id, as `token list` shows them.")]
WitnessOption = Annotated[
    list[str] | None,
    Option(help="Who remembers the log's head: a file on another disk, or the URL of another service. Repeatable."),
]
FOLDER = Path("out/service")


def serve(
    folder: options.FolderOption = FOLDER,
    host: Annotated[str, Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Option(help="Port to listen on; 0 takes a free one.", min=0, max=65535)] = 8420,
    database: options.DatabaseOption = None,
    data: Annotated[str, Option(help="Labelled collection that sifts are judged on.")] = "faces",
    path: options.PathOption = None,
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
    witness: WitnessOption = None,
    verdict_seconds: Annotated[
        float,
        Option(help="Apps are told verdicts after a whole number of these, or the time would tell them.", min=0.1),
    ] = 60,
    proxy: Annotated[str | None, Option(help="Address of a proxy whose X-Forwarded-For is believed.")] = None,
    seed: options.SeedOption = 0,
) -> None:
    """Start the service; Ctrl-C stops it, and unfinished work goes on at the next start."""
    _need_extra()
    from blindsight.data import load, pipeline
    from blindsight.service.foundation import PER_PERSON
    from blindsight.service.gateway import Gateway
    from blindsight.service.running import run_service
    from blindsight.service.settings import ServiceSettings
    from blindsight.sift.trial import QUICK
    from blindsight.sift.verify import Verifier

    settings = ServiceSettings(
        folder,
        database=database,
        host=host,
        port=port,
        certificate=certificate,
        key=key,
        requests_per_minute=requests_per_minute,
        without_tls=insecure_without_tls,
        witnesses=tuple(witness or ()),
        proxy=proxy,
        verdict_seconds=verdict_seconds,
    )

    def open_gateway() -> Gateway:
        with terminal_progress() as progress:
            own_choice = data == "faces" and count is None  # then, and of pixels, the service chooses for itself
            drawn: dict[str, Any] = {"pictures_per_person": PER_PERSON} if data == "faces" else {}
            shared: dict[str, Any] = {"random_state": seed, "progress": progress}
            return Gateway.open(
                settings,
                None if own_choice else load(data, path=path, count=count, **shared, **drawn),
                None if features == "pixels" else pipeline(features, random_state=seed),
                verifier=Verifier(QUICK if attackers == "quick" else attackers, random_state=seed),
                **shared,
            )

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

    if export is not None:
        check = verify_export(export, known_heads=known)
    else:
        with _opened(folder, database) as opened:
            check = open_log(folder, opened).verify(known_heads=known)
    if check.ok:
        noted = f"{check.entries}:{check.head}"
        show(asdict(check), f"The log holds: {check.entries} entries, none altered.", f"Its head: {noted}")
        return
    reason = f"The log was altered: {check.reason}"
    show(asdict(check), f"[bold red]{escape(reason)}[/]", f"The {check.entries} entries before hold.")
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
    replace: Annotated[bool, Option("--replace", help="In place of what is there; the folder is kept aside.")] = False,
) -> None:
    """Put a backup back. It is logged with what it gives up, and what budgets had left counts as used unless a
    witness shows that the backup is the newest state.
    """
    _need_extra()
    from blindsight.service import backup as backups

    done = backups.restore(source, folder, _url(folder, database), witnesses=witness or (), replace=replace)
    lost = ", ".join(done.given_up) or "none that is known"
    show(
        asdict(done),
        f"Restored: the log has {done.entries} entries. Later heads that were given up: {lost}.",
        f"Grants whose budget counts as used: {done.used_up}.",
    )


@tokens.command("create")
def create_token(
    name: Annotated[str, Argument(help="Name of a new person, app or operator.")],
    role: Annotated[Literal["owner", "app", "operator"], Argument(help="What the token is for.")],
    days: options.TokenDaysOption = None,
    folder: options.FolderOption = FOLDER,
    database: options.DatabaseOption = None,
) -> None:
    """Add somebody and print their token, this once."""
    with _principals(folder, database) as (principals, note):
        made, token = principals.create(name, role, expires=_in_days(days))
        note("create principal", made)
    _show_token(made, str(token))


@tokens.command("rotate")
def rotate_token(
    name: NameArgument,
    days: options.TokenDaysOption = None,
    folder: options.FolderOption = FOLDER,
    database: options.DatabaseOption = None,
) -> None:
    """Replace a token that was lost or seen by others; the old one opens nothing any more."""
    with _principals(folder, database) as (principals, note):
        known = _found(principals, name)
        token = principals.rotate(known.id, expires=_in_days(days))
        note("rotate token", known)
    _show_token(known, str(token))


@tokens.command("revoke")
def revoke_token(
    name: NameArgument,
    folder: options.FolderOption = FOLDER,
    database: options.DatabaseOption = None,
) -> None:
    """Make a token worthless, for ever."""
    with _principals(folder, database) as (principals, note):
        known = _found(principals, name)
        principals.revoke(known.id)
        note("revoke principal", known)
    show({"revoked": known.id, "name": known.name}, f"The token of {escape(known.name)} opens nothing any more.")


@tokens.command("list")
def list_tokens(folder: options.FolderOption = FOLDER, database: options.DatabaseOption = None) -> None:
    """Show everybody; tokens themselves are kept nowhere."""
    _need_extra()
    from blindsight.service.principals import Principals

    with _opened(folder, database) as opened:
        known = Principals(opened).list()
    rows = [(one.id, one.name, one.role, _day(one.created), _day(one.expires), _day(one.revoked)) for one in known]
    columns = ("id", "name", "role", "created", "expires", "revoked")
    document = [dict(zip(columns, row, strict=True)) for row in rows]
    show({"principals": document}, table(f"Who may ask {folder}", columns, rows))


def _noted_head(text: str) -> str:
    """Return a head as `size:root`; a file must hold a signed one, or a receipt that proves what it says."""
    if not Path(text).is_file():
        return text
    try:
        document = json.loads(Path(text).read_text())
        return str(check_receipt(document)[1] if "record" in document else TreeHead.from_dict(document))
    except (ValueError, TypeError):
        raise MessageError(f"{text} holds no head of a log, and no receipt.") from None


def _check_heads(heads: list[str], proof: Path) -> None:
    """Check that the log of one head is the beginning of that of another, by what the service proved."""
    try:
        (first, before), (second, after) = sorted((int(size), root) for size, root in (one.split(":") for one in heads))
        parts = [bytes.fromhex(part) for part in json.loads(proof.read_text())["proof"]]
        holds = consistent(first, bytes.fromhex(before), second, bytes.fromhex(after), parts)
    except (ValueError, KeyError, TypeError, OSError):
        raise InputError("a proof of consistency is a JSON file of the service, about two --head.") from None
    show(
        {"ok": holds, "first": first, "second": second},
        f"The log of {first} entries is {'' if holds else '[bold red]not[/] shown to be '}the beginning of {second}.",
    )
    if not holds:
        raise typer.Exit(1)


def _need_extra() -> None:
    for library in ("sqlalchemy", "fastapi", "uvicorn", "python_multipart"):
        require(library, extra="service", purpose="a service")


def _announce(address: str, token: str | None) -> None:
    """Say where the service is and, this once, which token opens it."""
    lines = [f"The service answers at {address} (Ctrl-C stops it)."]
    if token:
        lines += [
            "This is its first start. The operator's token, shown this once only:",
            f"\n    {token}\n",
            "It makes tokens for people and apps, and opens the page: open the address, and log in with it.",
        ]
    document = {"url": address} | ({"token": str(token)} if token else {})
    show(document, *lines)
    sys.stdout.flush()


def _show_token(whose: "Principal", token: str) -> None:
    document = {"id": whose.id, "name": whose.name, "role": whose.role, "token": token}
    show(document, f"The token of {escape(whose.name)} ({whose.role}), shown this once:", f"\n    {token}\n")


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
def _principals(folder: Path, database: str | None) -> "Iterator[tuple[Principals, Any]]":
    """Change who may ask, and note it in the log: both or neither."""
    _need_extra()
    from blindsight.service.log import MACHINE, open_log
    from blindsight.service.principals import Principals

    with _opened(folder, database) as opened:
        log = open_log(folder, opened)

        def note(action: str, whom: "Principal") -> None:
            log.append(MACHINE, action, {"principal": whom.id, "name": whom.name, "role": whom.role})

        with opened.session():
            yield Principals(opened, clock=log.now), note


def _found(principals: "Principals", name: str) -> "Principal":
    known = principals.list()
    for one in known:
        if name in (one.id, one.name):
            return one
    raise UnknownNameError("principal", name, [one.name for one in known])


def _in_days(days: int | None) -> datetime | None:
    return None if days is None else datetime.now(UTC) + timedelta(days=days)


def _day(moment: datetime | None) -> str:
    return "" if moment is None else moment.isoformat(timespec="seconds")
