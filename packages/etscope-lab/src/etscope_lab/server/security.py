"""Authentication and authorization of requests, and the sign-in page.

A request is accepted with a Bearer token of the lab; with an ID token of the configured OpenID
Connect provider; with a session that the sign-in page started for a token or a provider's user;
and, on a loopback address while the lab has no tokens, without either. A request that changes
something needs a CSRF token too, where a browser could send it by itself: see `needs` and
`middleware`.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from html import escape
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Form, Request, Security
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from itsdangerous import BadSignature, URLSafeTimedSerializer
from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter
from starlette.concurrency import run_in_threadpool

from etscope.errors import EtscopeError, LabError, MissingDataError, UsageError
from etscope_lab.database import SCOPES
from etscope_lab.server.errors import RequestError, sign_in_page
from etscope_lab.server.middleware import SAFE_METHODS
from etscope_lab.server.oidc import Provider, User
from etscope_lab.server.settings import Settings, local_secret

if TYPE_CHECKING:
    from etscope_lab.database import Database, Token

CSRF_FIELD = "csrf"
CSRF_HEADER = "X-CSRF-Token"
# Content types that a form of another site can send without asking first.
_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data", "text/plain")
_NO_SESSION = "anybody"
SEEN = ("GET", "HEAD")  # of a page: FastAPI adds no HEAD
_LONGEST_PATH = 2000
_SESSION_SECONDS = 12 * 3600

_bearer = HTTPBearer(auto_error=False, description="`etscope lab token add NAME` makes a token.")
_Credentials = Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)]


@dataclass(frozen=True, slots=True)
class Principal:
    """The sender of a request. session: the CSRF tokens of the sender's forms are bound to it.
    project: of the jobs that it submits."""

    name: str
    scopes: frozenset[str]
    by: Literal["token", "session", "loopback"]
    session: str = _NO_SESSION
    project: str = ""

    def may(self, scope: str) -> bool:
        return any(scope in SCOPES[: SCOPES.index(one) + 1] for one in self.scopes)


class Authenticator:
    """Checks the tokens and sessions of one lab; `app.state.authenticator`."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self.settings = settings
        self._database = database
        self._local = local_secret(settings.key).encode()
        self._sessions = URLSafeTimedSerializer(settings.key, salt="etscope.lab.session")
        self._forms = URLSafeTimedSerializer(settings.key, salt="etscope.lab.form")
        self._limiter = MovingWindowRateLimiter(MemoryStorage())
        self._failures = RateLimitItemPerMinute(settings.failures_per_minute)
        self.provider = None if settings.oidc is None else Provider(settings.oidc)
        # Browsers share cookies between all ports of a host.
        self.cookie = f"etscope_lab_{hashlib.sha256(settings.key).hexdigest()[:8]}"

    def needs_tokens(self) -> bool:
        """Return whether requests need a token."""
        asks = self.settings.require_tokens or self.provider is not None
        return asks or bool(self._database.tokens())

    def principal(self, request: Request, secret: str | None) -> Principal | None:
        """Return the sender of a request; None if it needs a token and has none.

        Raises `RequestError` for a wrong token.
        """
        if secret is not None:
            if hmac.compare_digest(secret.encode(), self._local):
                return Principal("", frozenset(SCOPES), "token")
            token = self.token(request, secret)
            return Principal(token.name, token.scopes, "token", project=token.project)
        if not self.needs_tokens():
            return Principal("", frozenset(SCOPES), "loopback")
        return self._session_principal(request.cookies.get(self.cookie))

    def token(self, request: Request, secret: str) -> Token:
        """Return the token with this secret.

        Raises `RequestError` for a wrong one; of status 429 after too many from the same address,
        which may be a proxy's: others behind it still sign in.
        """
        token = self._database.check_token(secret)
        if token is None:
            raise self._refusal(request)
        return token

    async def user(self, request: Request, secret: str) -> Principal:
        """Return the sender of an ID token of the provider. Raises `RequestError` as `token`."""
        assert self.provider is not None
        try:
            user = await self.provider.user_of_token(secret)
        except RequestError as error:
            raise (self._refusal(request) if error.status == 401 else error) from error
        return self.principal_of(user, "token")

    def principal_of(
        self, user: User, by: Literal["token", "session"], session: str = _NO_SESSION
    ) -> Principal:
        """The sender that a user of the provider is, by the grants of now."""
        oidc = self.settings.oidc
        grants = () if oidc is None else oidc.grants
        held = [one for one in grants if one.group == "*" or one.group in user.groups]
        if not held:
            raise RequestError(
                403,
                f"{user.name} has no rights in this lab",
                slug=LabError.slug,
                hint="grants: of server.oidc in lab.yaml gives rights to groups",
            )
        best = max(held, key=lambda one: SCOPES.index(one.scope))
        project = best.project or next((one.project for one in held if one.project), None)
        return Principal(user.name, frozenset({best.scope}), by, session, project or "")

    def _refusal(self, request: Request) -> RequestError:
        """The error for a wrong token; too many from an address are refused with status 429."""
        address = request.client.host if request.client else ""
        if self._limiter.hit(self._failures, address):
            return _unauthorized("this token is not valid, or has expired")
        return RequestError(
            429,
            "too many wrong tokens from this address",
            slug=LabError.slug,
            hint="wait a minute",
            headers={"Retry-After": "60"},
        )

    def _session_principal(self, cookie: str | None) -> Principal | None:
        if not cookie:
            return None
        try:
            content = self._sessions.loads(cookie, max_age=_SESSION_SECONDS)
            session = content["session"]
            if "groups" in content:
                user = User(content["name"], tuple(content["groups"]))
                return self.principal_of(user, "session", session)
            name, fingerprint = content["name"], content["token"]
        except (BadSignature, KeyError, TypeError, RequestError):
            return None
        now = datetime.now(timezone.utc)
        for token in self._database.tokens():
            if token.name == name and (token.expires_at is None or token.expires_at > now):
                if not hmac.compare_digest(_fingerprint(token), fingerprint):
                    return None  # another token of the same name
                return Principal(name, token.scopes, "session", session, token.project)
        return None

    def start_session(self, request: Request, response: Response, who: Token | User) -> None:
        """Give the browser a session for a token, which it ends with, or for a user."""
        content: dict[str, Any] = {"name": who.name, "session": secrets.token_urlsafe(16)}
        if isinstance(who, User):
            content["groups"] = who.groups
        else:
            content["token"] = _fingerprint(who)
        response.set_cookie(
            self.cookie,
            str(self._sessions.dumps(content)),
            max_age=_SESSION_SECONDS,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )

    def end_session(self, response: Response) -> None:
        response.delete_cookie(self.cookie, httponly=True, samesite="strict")

    def form_token(self, session: str) -> str:
        return str(self._forms.dumps(session))

    def is_form_token(self, session: str, text: str) -> bool:
        try:
            content = self._forms.loads(text, max_age=_SESSION_SECONDS)
        except BadSignature:
            return False
        return isinstance(content, str) and hmac.compare_digest(content.encode(), session.encode())


def _fingerprint(token: Token) -> str:
    return f"{token.created_at.isoformat()} {','.join(sorted(token.scopes))}"


def needs(scope: str) -> Callable[..., Awaitable[Principal]]:
    """Return a dependency that accepts requests from senders with the scope.

    A form, and a request by session that changes something, needs a CSRF token: `csrf_token`, in
    the field "csrf" or the header X-CSRF-Token. A request with a Bearer token needs none, since
    browsers do not add that by themselves. On a loopback address, other requests than forms cannot
    come from another site: `middleware.SameOrigin` checks their origin.
    """

    async def check(request: Request, credentials: _Credentials = None) -> Principal:
        authenticator: Authenticator = request.app.state.authenticator
        secret = None if credentials is None else credentials.credentials
        if secret is None and "authorization" in request.headers:
            raise _unauthorized("the Authorization header must hold a Bearer token")
        principal: Principal | None
        if secret and authenticator.provider is not None and secret.count(".") == 2:
            principal = await authenticator.user(request, secret)
        else:
            principal = await run_in_threadpool(authenticator.principal, request, secret)
        if principal is None:
            raise _unauthorized("this needs a token")
        if not principal.may(scope):
            raise RequestError(
                403,
                f"this needs the scope {scope!r}, which the token {principal.name!r} lacks",
                slug=LabError.slug,
                hint=f"etscope lab token add NAME --scope {scope}",
            )
        request.state.principal = principal
        is_form = content_type_of(request) in _FORMS
        if request.method not in SAFE_METHODS and (
            principal.by == "session" or (is_form and principal.by != "token")
        ):
            await check_csrf_token(request)
        return principal

    return check


async def reader_if_any(request: Request) -> Principal | None:
    """Return the sender of a request that needs no token, as its description says; None if it may
    not read."""
    try:
        return await needs("read")(request, await _bearer(request))
    except EtscopeError:  # also of a database that is away
        return None


def csrf_token(request: Request) -> str:
    """Return the token for the field "csrf" of each form on a page that answers `request`."""
    authenticator: Authenticator = request.app.state.authenticator
    return authenticator.form_token(_session(request))


async def check_csrf_token(request: Request) -> None:
    """Raise `RequestError` (403) unless the request has the CSRF token of its session."""
    text: Any = request.headers.get(CSRF_HEADER)
    if text is None and content_type_of(request) in _FORMS[:2]:
        text = (await request.form()).get(CSRF_FIELD)
    if text is None and request.url.path.startswith("/api/"):  # a program, not an old page
        raise RequestError(
            403,
            "a form of another site could send this request, and it has no CSRF token",
            slug=LabError.slug,
            hint="send files with 'Content-Type: application/octet-stream', all else with "
            f"'Content-Type: application/json'; a browser's session needs the header {CSRF_HEADER}",
        )
    authenticator: Authenticator = request.app.state.authenticator
    if not isinstance(text, str) or not authenticator.is_form_token(_session(request), text):
        raise RequestError(
            403,
            "this form has expired, or is not from this lab",
            slug=LabError.slug,
            hint="open the page again and repeat the request",
        )


def content_type_of(request: Request) -> str:
    """Return the content type of a request's body, without parameters, in lower case."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _session(request: Request) -> str:
    principal: Principal | None = getattr(request.state, "principal", None)
    return _NO_SESSION if principal is None else principal.session


def _unauthorized(message: str) -> RequestError:
    return RequestError(
        401,
        message,
        slug=LabError.slug,
        hint="etscope lab token add NAME makes a token; a client sends $ETSCOPE_LAB_TOKEN",
        headers={"WWW-Authenticate": "Bearer"},
    )


router = APIRouter(include_in_schema=False)


@router.api_route("/sign-in", methods=[*SEEN], response_model=None)
def sign_in_form(request: Request, next: str = "/") -> Response:
    oidc = request.app.state.settings.oidc
    return sign_in_page(csrf_token(request), own_path(next), issuer=oidc and oidc.issuer)


@router.get("/sign-in/oidc", response_model=None)
async def sign_in_elsewhere(request: Request, next: str = "/") -> Response:
    """Send the browser to the provider."""
    provider = _provider_of(request)
    request.session["next"] = own_path(next)
    return await provider.redirect(request, str(request.url_for("signed_in")))


@router.get("/sign-in/oidc/callback", response_model=None)
async def signed_in(request: Request) -> Response:
    """Start the session of a user whom the provider sent back."""
    authenticator: Authenticator = request.app.state.authenticator
    try:
        user = await _provider_of(request).user_of_code(request)
        authenticator.principal_of(user, "session")
    except RequestError as error:
        shown = UsageError(error.message, hint=error.hint)
        status = 403 if error.status == 401 else error.status
        issuer = request.app.state.settings.oidc.issuer
        return sign_in_page(csrf_token(request), "/", error=shown, status=status, issuer=issuer)
    path = own_path(request.session.pop("next", "/"))
    # Not a redirect: the browser would send no strict cookie, as it comes from another site.
    text = f'<!doctype html><meta http-equiv="refresh" content="0; url={escape(path)}">'
    response = HTMLResponse(text)
    authenticator.start_session(request, response, user)
    return response


def _provider_of(request: Request) -> Provider:
    provider: Provider | None = request.app.state.authenticator.provider
    if provider is None:
        raise RequestError(404, "this lab has no sign-in provider", slug=MissingDataError.slug)
    return provider


@router.post("/sign-in", response_model=None)
async def sign_in(
    request: Request,
    token: Annotated[str, Form(max_length=500)],
    next: Annotated[str, Form()] = "/",
) -> Response:
    authenticator: Authenticator = request.app.state.authenticator
    path = own_path(next)
    try:
        await check_csrf_token(request)
        found = await run_in_threadpool(authenticator.token, request, token.strip())
    except RequestError as error:
        shown = error if error.status != 401 else UsageError(error.message)
        page = sign_in_page(csrf_token(request), path, error=shown, status=error.status)
        page.headers.update({k: v for k, v in error.headers.items() if k == "Retry-After"})
        return page
    response = RedirectResponse(path, 303)
    authenticator.start_session(request, response, found)
    return response


@router.post("/sign-out", response_model=None)
async def sign_out(request: Request) -> Response:
    """End the session. No CSRF token is needed: `SameOrigin` has checked the origin."""
    response = RedirectResponse("/sign-in", 303)
    request.app.state.authenticator.end_session(response)
    return response


def own_path(path: str) -> str:
    """Return `path` if it is a path of this server; "/" for one that a browser could take for an
    address of another."""
    is_unsafe = any(ord(char) <= 0x20 or char in "\\\x7f" for char in path)
    too_long = len(path) > _LONGEST_PATH
    return (
        "/" if is_unsafe or too_long or not path.startswith("/") or path.startswith("//") else path
    )
