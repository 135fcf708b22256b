"""What the operator put on the shelf, learning runs and indexes, and the endpoints that show and ask them.

A folder ``runs/NAME`` is what `blindsight learn encrypted` wrote (``run.json``, then ``history.json`` with the rounds
so far, at last ``statement.json``), ``indexes/NAME`` what `blindsight search build` wrote; either may be a link. A name
from outside only ever picks one of the names that are there, so it cannot lead anywhere else. Of a run nothing is shown
but how it was set up, how far it is and its statement: no model, no recorded round, no path of this machine.

An index in local mode may be given away, so who has something to hide in a query takes the whole of it and ranks at
home. What it answers is computed from noisy releases alone, so anybody may ask it; the picture is forgotten. The codes
of a central or open index carry no noise, and distances to them tell what they are: only the operator may ask those
with a picture. Others ask under encryption (`search.encrypted_query`), as often in all as the owner of the index
allows: nobody here learns the query, and what the answers tell is bounded.
"""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, Query, Request, Response

from blindsight.errors import CorruptFileError, PrivacyError, StorageError, UnknownNameError
from blindsight.files import storage_errors
from blindsight.search.encrypted_query import QueryServer
from blindsight.search.gallery import Gallery, gallery_file
from blindsight.service.access import (
    BODY,
    PICTURE,
    Answers,
    Caller,
    Picture,
    TheGateway,
    guarded_router,
    refusals,
)
from blindsight.service.frames import decode_within
from blindsight.service.models import Hit, Hits, IndexList, IndexView, RunList, RunView, StatementList, StatementView
from blindsight.statement import PrivacyStatement

_ABOUT, _STATEMENT, _HISTORY = "run.json", "statement.json", "history.json"


@dataclass(frozen=True)
class RunRecord:
    """A run as it lies in its folder; without a statement it is not finished."""

    name: str
    about: dict[str, Any]
    history: list[dict[str, Any]]
    statement: PrivacyStatement | None


class Shelf:
    """Runs and indexes under one folder."""

    def __init__(self, folder: Path) -> None:
        self._runs, self._indexes = folder / "runs", folder / "indexes"
        self._open: dict[str, tuple[int, Gallery]] = {}
        self._answering: dict[str, tuple[Gallery, QueryServer]] = {}
        self._mutex = threading.Lock()

    def runs(self) -> tuple[str, ...]:
        return _names(self._runs, lambda folder: (folder / _ABOUT).is_file())

    def run(self, name: str) -> RunRecord:
        """Return what is known of one run."""
        if name not in self.runs():
            raise UnknownNameError("run", name, self.runs())
        folder = self._runs / name
        about = _document(folder / _ABOUT, dict)
        history = _document(folder / _HISTORY, list) if (folder / _HISTORY).is_file() else []
        said = folder / _STATEMENT
        statement = PrivacyStatement.from_dict(_document(said, dict)) if said.is_file() else None
        return RunRecord(name, about, history, statement)

    def indexes(self) -> tuple[str, ...]:
        """Return the names of all finished indexes."""
        return _names(self._indexes, lambda folder: gallery_file(folder) is not None)

    def index(self, name: str) -> Gallery:
        """Return an index, read once as long as it is not built anew."""
        file = gallery_file(self._indexes / name) if name in self.indexes() else None
        if file is None:
            raise UnknownNameError("index", name, self.indexes())
        with storage_errors("read", file):
            made = file.stat().st_mtime_ns
        with self._mutex:
            known = self._open.get(name)
            if known is None or known[0] != made:
                known = self._open[name] = (made, Gallery.load(self._indexes / name))
        return known[1]

    def query_server(self, name: str) -> QueryServer:
        """Return what answers encrypted queries to an index; its codes are encoded once."""
        gallery = self.index(name)
        with self._mutex:
            known = self._answering.get(name)
            if known is None or known[0] is not gallery:
                known = self._answering[name] = (gallery, QueryServer(gallery, self._indexes / name))
        return known[1]


def _names(folder: Path, holds: Callable[[Path], bool]) -> tuple[str, ...]:
    if not folder.is_dir():
        return ()
    with storage_errors("read", folder):
        return tuple(sorted(one.name for one in folder.iterdir() if not one.name.startswith(".") and holds(one)))


def _document(path: Path, kind: type) -> Any:
    with storage_errors("read", path):
        text = path.read_text()
    try:
        document = json.loads(text)
    except ValueError:
        raise CorruptFileError(f"{path} is not JSON: damaged, or of another version.") from None
    if not isinstance(document, kind):
        raise StorageError(f"{path} is of another kind or version.")
    return document


router = guarded_router()


async def _shelf(request: Request) -> Shelf:
    shelf = request.app.state.shelf
    assert isinstance(shelf, Shelf)
    return shelf


TheShelf = Annotated[Shelf, Depends(_shelf)]


def _octets(what: str) -> Answers:
    return {200: {"content": {"application/octet-stream": {}}, "description": what}}


@router.get("/indexes")
def list_indexes(shelf: TheShelf) -> IndexList:
    """Return all indexes and what is proven about each."""
    return IndexList(indexes=[_view(name, shelf.index(name)) for name in shelf.indexes()])


@router.post("/indexes/{name}/query", responses=refusals(404, *BODY), openapi_extra=PICTURE)
def query_index(
    gateway: TheGateway,
    shelf: TheShelf,
    principal: Caller,
    name: str,
    picture: Picture,
    k: Annotated[int, Query(ge=1, le=100)] = 10,
) -> Hits:
    """Return the nearest pictures to the one that was sent, by their numbers."""
    gallery = shelf.index(name)
    if gallery.mode != "local" and principal.role != "operator":
        raise PrivacyError(f"the codes of a {gallery.mode} index carry no noise: only the operator may ask it.")
    query = decode_within(picture, size=gallery.side, pixels=gateway.settings.picture_pixels)
    found = gallery.search(query[None], min(k, len(gallery)))[0]
    return Hits(hits=[Hit(number=hit.number, nearness=hit.nearness) for hit in found])


@router.get("/indexes/{name}/file", responses=refusals(404) | _octets("The index."), response_class=Response)
def take_index(
    shelf: TheShelf,
    name: str,
    numbers: Annotated[bool, Query(description="With the numbers of pictures, eight bytes each.")] = True,
) -> Response:
    """Return the whole of an index in local mode, to be asked where the query is."""
    return Response(shelf.index(name).given_away(numbers=numbers), media_type="application/octet-stream")


@router.get("/indexes/{name}/encrypted", responses=refusals(404) | _octets("The set-up."), response_class=Response)
def query_setup(shelf: TheShelf, name: str) -> Response:
    """Return what is needed before the first encrypted query: the hash function, numbers, and what is proven."""
    return Response(shelf.query_server(name).setup().to_bytes(), media_type="application/octet-stream")


@router.post(
    "/indexes/{name}/encrypted",
    responses=refusals(404, *BODY) | _octets("The encrypted distances."),
    response_class=Response,
    openapi_extra=PICTURE,
)
def answer_encrypted(shelf: TheShelf, name: str, query: Picture) -> Response:
    """Return the encrypted distances of all pictures to an encrypted query, if the budget of the index allows it."""
    return Response(shelf.query_server(name).answer(query), media_type="application/octet-stream")


def _view(name: str, gallery: Gallery) -> IndexView:
    headline = gallery.statement.headline()
    return IndexView(name=name, mode=gallery.mode, pictures=len(gallery), headline=headline)


@router.get("/runs")
def list_runs(shelf: TheShelf) -> RunList:
    """Return the names of all runs."""
    return RunList(runs=list(shelf.runs()))


@router.get("/runs/{name}", responses=refusals(404))
def show_run(shelf: TheShelf, name: str) -> RunView:
    """Return how a run was set up, its rounds so far, and (once it is finished) its privacy statement."""
    run = shelf.run(name)
    return RunView(
        name=name,
        data=str(run.about.get("data", "")),
        owners=int(run.about.get("owners", 0)),
        features=str(run.about.get("features", "")),
        finished=run.statement is not None,
        rounds=len(run.history),
        score=run.history[-1].get("score") if run.history else None,
        history=run.history,
        statement=None if run.statement is None else run.statement.to_dict(),
    )


@router.get("/statements")
def list_statements(gateway: TheGateway, shelf: TheShelf, principal: Caller) -> StatementList:
    """Return every statement the caller may read; those of learning runs are not for apps."""
    said = [(subject, dict(statement)) for subject, statement in gateway.statements(principal)]
    said += [(f"index {name}", shelf.index(name).statement.to_dict()) for name in shelf.indexes()]
    if principal.role == "app":
        return _listed(said)
    finished = ((name, shelf.run(name).statement) for name in shelf.runs())
    said += [(f"run {name}", statement.to_dict()) for name, statement in finished if statement is not None]
    return _listed(said)


def _listed(said: list[tuple[str, dict[str, Any]]]) -> StatementList:
    return StatementList(statements=[StatementView(subject=subject, statement=one) for subject, one in said])
