"""Releases: the only way in which anything about a person reaches an app."""

import json

from fastapi import Response

from blindsight.service.access import Caller
from blindsight.service.endpoints import BODY, TheGateway, guarded_router, refusals
from blindsight.service.models import Released
from blindsight.service.requests import NewRelease

router = guarded_router("releases")


@router.post("/releases", response_model=Released, responses=refusals(404, *BODY))
def release(gateway: TheGateway, app: Caller, wanted: NewRelease) -> Response:
    """Return what the app's grant lets out of some frames of a person, or refuse all of them together."""
    released = gateway.release(app, wanted.person, frames=wanted.frames, latest=wanted.latest)
    answer = {"grant": released.grant, "rows": released.rows, "labels": released.labels}
    return Response(json.dumps(answer, allow_nan=False), media_type="application/json")
