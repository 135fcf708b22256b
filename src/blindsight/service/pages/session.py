"""Who looks at the page: a token pasted once becomes a cookie that no script can read and no other site can send.

*The guarantee.* The cookie holds the token itself and is looked up on every request, so a token that expired or was
revoked opens nothing, from that moment on. What changes anything is a POST that this page itself sent (`check_origin`),
beside a cookie that browsers send to this page alone (`SameSite=Strict`). No token is ever in an address. Browsers send
the cookie to every port of this machine: log out on a machine whose other services you do not trust.
"""

from urllib.parse import urlsplit

from fastapi import Request, Response

from blindsight.service.errors import Refusal
from blindsight.service.principals import Principal, Principals, Role
from blindsight.service.settings import ServiceSettings

COOKIE = "blindsight_token"
_DAYS = 1


def is_encrypted(request: Request, settings: ServiceSettings) -> bool:
    """Tell whether the browser talks TLS, to this service or to a proxy on this machine before it."""
    return settings.encrypted or request.url.scheme == "https"


def visitor(request: Request, principals: Principals) -> Principal | None:
    """Return who looks, or None for somebody without a valid cookie."""
    token = request.cookies.get(COOKIE)
    return None if token is None else principals.authenticate(token)


def remember(response: Response, token: str, *, encrypted: bool) -> None:
    """Give the browser its cookie."""
    response.set_cookie(
        COOKIE, token, max_age=_DAYS * 86_400, httponly=True, samesite="strict", secure=encrypted, path="/"
    )


def forget(response: Response, *, encrypted: bool) -> None:
    """Take the cookie back."""
    response.delete_cookie(COOKIE, httponly=True, samesite="strict", secure=encrypted, path="/")


def check_origin(request: Request) -> None:
    """Refuse what another site sent, or what does not say where it comes from.

    A browser that was told to send no referrers makes the origin of a form "null"; it says so in `Sec-Fetch-Site`.
    """
    origin, host = request.headers.get("origin", "null"), request.headers.get("host", "")
    same = urlsplit(origin).netloc == host
    if origin == "null":
        same = request.headers.get("sec-fetch-site") == "same-origin"
    if not host or not same:
        raise Refusal(403, "this did not come from this page. Open the page itself and try again.")


def require(who: Principal | None, *roles: Role) -> Principal:
    """Return who looks, or refuse whoever did not log in or has another role."""
    if who is None:
        raise Refusal(401, "log in with a token first.")
    if roles and who.role not in roles:
        raise Refusal(403, f"this is for the role {' or '.join(roles)}; you are logged in as {who.role}.")
    return who
