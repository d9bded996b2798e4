"""The cookie of a login, and whether a change that comes with it was made by a page of this server.

Knows no login: the cookie's text means nothing here.
"""

from __future__ import annotations

from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import Response

from iothub.rest.problems import Code, ProblemError

if TYPE_CHECKING:
    from starlette.types import Scope

LOGIN = "iothub"
_READING = ("GET", "HEAD", "OPTIONS")
_COOKIES_BYTES = 16 << 10


def read(scope: Scope, name: str = LOGIN) -> str | None:
    """Return what the request's cookie has; None: there is none."""
    text = "; ".join(Headers(scope=scope).getlist("cookie"))
    if len(text) > _COOKIES_BYTES:
        return None
    try:
        found = SimpleCookie(text).get(_full(scope, name))
    except CookieError:
        return None
    return found.value if found is not None and found.value else None


def put(
    response: Response, scope: Scope, value: str, max_age_s: int, name: str = LOGIN, same_site: str = "strict"
) -> None:
    """Give the browser a cookie that scripts cannot read, and that no page of another site sends."""
    response.set_cookie(
        _full(scope, name),
        value,
        max_age=max_age_s,
        path="/",
        secure=_is_secure(scope),
        httponly=True,
        samesite="lax" if same_site == "lax" else "strict",
    )


def drop(response: Response, scope: Scope, name: str = LOGIN) -> None:
    """Have the browser forget the cookie."""
    put(response, scope, "", 0, name)


def origins(scope: Scope, public_url: str) -> frozenset[str]:
    """Return the origins of pages that are this server's own. `public_url`: where people reach it, if that is set."""
    host = Headers(scope=scope).get("host", "")
    public = urlsplit(public_url)
    return frozenset({f"{scope['scheme']}://{host}".lower(), f"{public.scheme}://{public.netloc}".lower()})


def require_own_origin(scope: Scope, public_url: str, *, is_required: bool) -> None:
    """Raise ProblemError for a change that a page of another origin has made. `is_required`: or that does not say."""
    if scope["method"] in _READING:
        return
    given = Headers(scope=scope).get("origin")
    if (given is None and is_required) or (given is not None and given.lower() not in origins(scope, public_url)):
        raise ProblemError(
            Code.CROSS_ORIGIN,
            "a change by a logged-in browser comes from a page of this server: the header Origin has another one, or is missing",
        )


def _full(scope: Scope, name: str) -> str:
    """Over TLS with the prefix that keeps other hosts of the domain from setting it."""
    return f"__Host-{name}" if _is_secure(scope) else name


def _is_secure(scope: Scope) -> bool:
    return str(scope["scheme"]) == "https"
