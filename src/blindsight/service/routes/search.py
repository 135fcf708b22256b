"""Indexes: take one home, or ask it with a picture. Numbers come back, and the picture is forgotten.

An index in local mode may be given away, so whoever has something to hide in a query takes the whole of it and ranks at
home: nobody learns the query, not even that there was one.

What an index in local mode answers is computed from noisy releases alone, so anybody may ask it. The codes of a central
or open index carry no noise, and distances to them tell what they are: only the operator may ask those with a picture.
Others ask under encryption (`search.encrypted_query`), as often in all as the owner of the index allows: nobody here
learns the query, and what the answers tell is bounded.
"""

from typing import Annotated

from fastapi import Query, Response

from blindsight.errors import PrivacyError
from blindsight.search.gallery import Gallery
from blindsight.service.access import Caller
from blindsight.service.endpoints import (
    BODY,
    PICTURE,
    Answers,
    Picture,
    TheGateway,
    TheShelf,
    guarded_router,
    refusals,
)
from blindsight.service.frames import decode_within
from blindsight.service.models import Hit, Hits, IndexList, IndexView

router = guarded_router("search")


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
