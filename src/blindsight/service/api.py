"""The whole door: limits, then the guard, then one call of the gateway; and the page, where there is one.

`create_app` checks before it returns that every route under /v1 is guarded (`access`); else the service does not start.
The document at /v1/openapi.json describes every answer. There is no page that loads a viewer from elsewhere.
"""

from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from blindsight import __version__
from blindsight.service import errors, library, routes
from blindsight.service.access import ACCESS, PREFIX, check_routes, described
from blindsight.service.gateway import Gateway
from blindsight.service.library import Shelf
from blindsight.service.limits import RateLimit, Turns, add_limits
from blindsight.service.models import Health
from blindsight.service.settings import ServiceSettings

if TYPE_CHECKING:
    from blindsight.service.demo import Showcase

_ABOUT = (
    "A trusted service that holds pictures, verifies what apps propose, and lets only sifted data out. "
    "Every call but /v1/health and /v1/ready needs a token: `Authorization: Bearer TOKEN`. Every refusal is one "
    'sentence: `{"error": "..."}`.'
)


def create_app(settings: ServiceSettings, gateway: Gateway, showcase: "Showcase | None" = None) -> FastAPI:
    """Return the service's app over a gateway, with the page where there is something to show on it.

    Whoever opened gateway and showcase starts and closes them.
    """
    app = FastAPI(
        title="Blindsight",
        version=__version__,
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.gateway, app.state.shelf = gateway, Shelf(settings.folder)
    app.state.limit, app.state.turns = RateLimit(settings.requests_per_minute), Turns()
    errors.install(app)
    add_limits(app, settings)
    app.add_api_route(f"{PREFIX}/health", _health, methods=["GET"], tags=["health"], responses=described(429))
    app.add_api_route(f"{PREFIX}/ready", _ready, methods=["GET"], tags=["health"], responses=described(429, 503))
    app.router.routes.extend([*routes.router.routes, *library.router.routes])  # releases first: asked most often
    if showcase is not None:
        _add_page(app, settings, gateway, showcase)
    check_routes(app.routes)
    app.openapi = lambda: _described(app)  # type: ignore[method-assign]
    return app


def _ready(request: Request) -> Health:
    """Tell that the service can do what it is asked, or refuse: its database, its disk or its worker is away."""
    request.app.state.gateway.check_ready()
    return Health(status="ok", version=__version__)


async def _health() -> Health:
    """Tell that the service answers; whether it can do its work is what /v1/ready tells."""
    return Health(status="ok", version=__version__)


def _add_page(app: FastAPI, settings: ServiceSettings, gateway: Gateway, showcase: "Showcase") -> None:
    from blindsight.service.pages.routes import page_router  # brings what the API alone does not need

    app.include_router(page_router(gateway, showcase, gateway.principals, settings))


def _described(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document, with who may ask what; made once."""
    if app.openapi_schema is None:
        routes = [route for route in app.routes if isinstance(route, APIRoute) and route.path.startswith(PREFIX)]
        document = get_openapi(title=app.title, version=app.version, description=_ABOUT, routes=routes)
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        for (method, path), roles in ACCESS.items():
            operation = document["paths"][path][method.lower()]
            operation |= {"security": [{"token": []}], "x-roles": sorted(roles)}
        app.openapi_schema = document
    return app.openapi_schema
