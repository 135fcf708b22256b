"""`blindsight serve`: the trusted service and its page, who may ask it, and a check of its log."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.markup import escape

from blindsight.cli.terminal import DebugOption, JsonOption, SeedOption, show, table, terminal_progress
from blindsight.errors import StorageError, UnknownNameError
from blindsight.extras import require

if TYPE_CHECKING:  # the service brings libraries of its own extra
    from blindsight.data import Dataset, FeaturePipeline
    from blindsight.progress import Progress
    from blindsight.service.database import Database
    from blindsight.service.principals import Principal, Principals
    from blindsight.sift.verify import Verifier

tokens = typer.Typer(
    help="Who may ask a service, for the operator on its machine; it may run meanwhile.", no_args_is_help=True
)

Attackers = Literal["paper", "modern", "quick"]

FOLDER = Path("out/service")
FolderOption = Annotated[Path, typer.Option("--folder", help="Folder of everything the service keeps.")]
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        "--database", help="URL of its database; default: SQLite in the folder.", envvar="BLINDSIGHT_DATABASE"
    ),
]
NameArgument = Annotated[str, typer.Argument(help="Name or id, as `token list` shows them.")]
DaysOption = Annotated[
    int | None, typer.Option("--days", help="How long the token opens anything; default: for ever.", min=1, max=3650)
]


def serve(
    folder: FolderOption = FOLDER,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", help="Port to listen on; 0 takes a free one.", min=0, max=65535)
    ] = 8420,
    database: DatabaseOption = None,
    data: Annotated[str, typer.Option("--data", help="Labelled collection that sifts are judged on.")] = "faces",
    path: Annotated[
        Path | None, typer.Option("--path", help="Where the collection lies, if it is read from a path.")
    ] = None,
    count: Annotated[
        int | None, typer.Option("-n", "--count", help="At most this many of its pictures; of faces 5,000.", min=1)
    ] = None,
    features: Annotated[
        str, typer.Option("--features", help="pixels, embedding, or the path of an ONNX model.")
    ] = "pixels",
    attackers: Annotated[
        Attackers,
        typer.Option("--attackers", help="Who judges at first: the paper's five, thirteen, or a quick three."),
    ] = "modern",
    certificate: Annotated[Path | None, typer.Option("--certificate", help="TLS certificate, a PEM file.")] = None,
    key: Annotated[Path | None, typer.Option("--key", help="Its key, a PEM file without a password.")] = None,
    insecure_without_tls: Annotated[
        bool,
        typer.Option(
            "--insecure-without-tls", help="Listen in a network without TLS: tokens and pictures are readable."
        ),
    ] = False,
    page: Annotated[bool, typer.Option("--page/--no-page", help="Show the page, or answer the API alone.")] = True,
    requests_per_minute: Annotated[
        int, typer.Option("--requests-per-minute", help="Of one principal, and of one address.", min=1)
    ] = 600,
    seed: SeedOption = 0,
    json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Start the service; Ctrl-C stops it, and unfinished work goes on at the next start."""
    _need_extra()
    from blindsight.service.gateway import Gateway
    from blindsight.service.running import run_service
    from blindsight.service.settings import ServiceSettings

    settings = ServiceSettings(
        folder,
        database=database,
        host=host,
        port=port,
        certificate=certificate,
        key=key,
        requests_per_minute=requests_per_minute,
        without_tls=insecure_without_tls,
    )

    def open_gateway() -> Gateway:
        with terminal_progress() as progress:
            return Gateway.open(
                settings,
                _collection(data, path, count, seed, progress),
                _pipeline(features, seed),
                verifier=_verifier(attackers, seed),
                random_state=seed,
                progress=progress,
            )

    run_service(settings, open_gateway, _announce, page=page)
    sys.stderr.write("Stopped. Unfinished work goes on at the next start.\n")


def verify_log(
    export: Annotated[
        Path | None, typer.Argument(help="A log that was exported; without it the service's own.")
    ] = None,
    folder: FolderOption = FOLDER,
    database: DatabaseOption = None,
    head: Annotated[
        str | None, typer.Option("--head", help="A head noted earlier, which the log must still include.")
    ] = None,
    json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Follow the chain of a service's audit log. Exit code 0: nothing was altered; 1: something was, and where."""
    _need_extra()
    from blindsight.service.log import AuditLog, verify_export

    if export is not None:
        check = verify_export(export, known_head=head)
    else:
        with _opened(folder, database) as opened:
            check = AuditLog(opened).verify(known_head=head)
    if check.ok:
        show(asdict(check), f"The log holds: {check.entries} entries, none altered.", f"Its head: {check.head}")
        return
    reason = f"The log was altered: {check.reason}"
    show(asdict(check), f"[bold red]{escape(reason)}[/]", f"The {check.entries} entries before hold.")
    raise typer.Exit(1)


@tokens.command("create")
def create_token(
    name: Annotated[str, typer.Argument(help="Name of a new person, app or operator.")],
    role: Annotated[Literal["owner", "app", "operator"], typer.Argument(help="What the token is for.")],
    days: DaysOption = None,
    folder: FolderOption = FOLDER,
    database: DatabaseOption = None,
    json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Add somebody and print their token, this once."""
    with _principals(folder, database) as (principals, note):
        made, token = principals.create(name, role, expires=_in_days(days))
        note("create principal", made)
    _show_token(made, str(token))


@tokens.command("rotate")
def rotate_token(
    name: NameArgument,
    days: DaysOption = None,
    folder: FolderOption = FOLDER,
    database: DatabaseOption = None,
    json: JsonOption = False,
    debug: DebugOption = False,
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
    folder: FolderOption = FOLDER,
    database: DatabaseOption = None,
    json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Make a token worthless, for ever."""
    with _principals(folder, database) as (principals, note):
        known = _found(principals, name)
        principals.revoke(known.id)
        note("revoke principal", known)
    show({"revoked": known.id, "name": known.name}, f"The token of {escape(known.name)} opens nothing any more.")


@tokens.command("list")
def list_tokens(
    folder: FolderOption = FOLDER, database: DatabaseOption = None, json: JsonOption = False, debug: DebugOption = False
) -> None:
    """Show everybody; tokens themselves are kept nowhere."""
    _need_extra()
    from blindsight.service.principals import Principals

    with _opened(folder, database) as opened:
        known = Principals(opened).list()
    rows = [(one.id, one.name, one.role, _day(one.created), _day(one.expires), _day(one.revoked)) for one in known]
    columns = ("id", "name", "role", "created", "expires", "revoked")
    document = [dict(zip(columns, row, strict=True)) for row in rows]
    show({"principals": document}, table(f"Who may ask {folder}", columns, rows))


def _need_extra() -> None:
    for library in ("sqlalchemy", "fastapi", "uvicorn", "python_multipart"):
        require(library, extra="service", purpose="a service")


def _collection(data: str, path: Path | None, count: int | None, seed: int, progress: "Progress") -> "Dataset | None":
    """Load the collection; None is the service's own choice of drawn faces."""
    from blindsight.data import load
    from blindsight.service.foundation import PER_PERSON

    if data == "faces" and count is None:
        return None
    options: dict[str, Any] = {"pictures_per_person": PER_PERSON} if data == "faces" else {}
    return load(data, path=path, count=count, random_state=seed, progress=progress, **options)


def _pipeline(features: str, seed: int) -> "FeaturePipeline | None":
    """Return what makes features; None is the service's own choice of principal components."""
    from blindsight.data import pipeline

    return None if features == "pixels" else pipeline(features, random_state=seed)


def _verifier(attackers: Attackers, seed: int) -> "Verifier":
    from blindsight.sift.lossbench import QUICK
    from blindsight.sift.verify import Verifier

    return Verifier(QUICK if attackers == "quick" else attackers, random_state=seed)


def _announce(address: str, token: str | None) -> None:
    """Say where the service is and, this once, which token opens it."""
    lines = [f"The service answers at {address} (Ctrl-C stops it)."]
    if token:
        lines += [
            "This is its first start. The operator's token, shown this once only:",
            f"\n    {token}\n",
        ]
        lines += ["It makes tokens for people and apps, and opens the page: open the address, and log in with it."]
    document = {"url": address} | ({"token": str(token)} if token else {})
    show(document, *lines)
    sys.stdout.flush()


def _show_token(whose: "Principal", token: str) -> None:
    document = {"id": whose.id, "name": whose.name, "role": whose.role, "token": token}
    show(document, f"The token of {escape(whose.name)} ({whose.role}), shown this once:", f"\n    {token}\n")


@contextmanager
def _opened(folder: Path, database: str | None) -> "Iterator[Database]":
    """Open the database of a service that has run before; a service that never ran is not made by looking at it."""
    from blindsight.service.database import open_database
    from blindsight.service.settings import ServiceSettings

    if database is None and not (folder / "service.db").is_file():
        raise StorageError(f"there is no service in {folder}. Start one with `blindsight serve`, or name its --folder.")
    opened = open_database(ServiceSettings(folder, database=database).database_url)
    try:
        yield opened
    finally:
        opened.close()


@contextmanager
def _principals(folder: Path, database: str | None) -> "Iterator[tuple[Principals, Any]]":
    """Change who may ask, and note it in the log: both or neither."""
    _need_extra()
    from blindsight.service.log import AuditLog
    from blindsight.service.principals import Principals
    from blindsight.service.running import MACHINE

    with _opened(folder, database) as opened, opened.session():

        def note(action: str, whom: "Principal") -> None:
            about = {"principal": whom.id, "name": whom.name, "role": whom.role}
            AuditLog(opened).append(MACHINE, action, about)

        yield Principals(opened), note


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
