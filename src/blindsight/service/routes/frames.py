"""Frames: pictures of a person. They come in; only the person gets them out again."""

from typing import Any

from fastapi import Response

from blindsight.service.access import Caller, own
from blindsight.service.endpoints import BODY, PICTURE, Picture, TheGateway, guarded_router, refusals
from blindsight.service.models import FrameList, FrameView
from blindsight.service.requests import Identifier, Name

router = guarded_router("frames")

_PNG: dict[str, Any] = {"content": {"image/png": {"schema": {"type": "string", "format": "binary"}}}}


@router.get("/people/{person}/frames", responses=refusals(404))
def list_frames(gateway: TheGateway, owner: Caller, person: Name) -> FrameList:
    """Return the ids of a person's pictures, oldest first."""
    own(owner, person)
    return FrameList(frames=list(gateway.frame_ids(owner)))


@router.post("/people/{person}/frames", status_code=201, responses=refusals(404, *BODY), openapi_extra=PICTURE)
def add_frame(gateway: TheGateway, owner: Caller, person: Name, picture: Picture) -> FrameView:
    """Take in a picture: the body is the file itself. Of what the file says beside its pixels nothing is kept."""
    own(owner, person)
    return FrameView(frame=gateway.add_frame(owner, picture))


@router.get(
    "/people/{person}/frames/{frame}",
    response_class=Response,
    responses=refusals(404) | {200: {"description": "the picture", **_PNG}},
)
def show_frame(gateway: TheGateway, owner: Caller, person: Name, frame: Identifier) -> Response:
    """Return a picture to the person on it."""
    own(owner, person)
    return Response(gateway.picture(owner, frame), media_type="image/png")


@router.delete("/people/{person}/frames/{frame}", responses=refusals(404))
def delete_frame(gateway: TheGateway, owner: Caller, person: Name, frame: Identifier) -> FrameView:
    """Forget a picture and its features; what was released of it cannot be taken back."""
    own(owner, person)
    gateway.delete_frame(owner, frame)
    return FrameView(frame=frame)
