"""Who asks, and what they may do.

Three ways in: a Bearer token; a session that the sign-in page gave for a token; and, on the
loopback while the lab has no tokens, anybody who gets there. A request that changes something needs
more where a browser sends it by itself: see `needs` and `middleware`.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from itsdangerous import BadSignature, URLSafeTimedSerializer
from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter
from starlette.concurrency import run_in_threadpool

from etscope.errors import LabError
from etscope.lab.database import SCOPES
from etscope.lab.server.errors import Refused
from etscope.lab.server.settings import Settings, local_secret

if TYPE_CHECKING:
    from starlette.responses import Response

    from etscope.lab.database import Database, Token

CSRF_FIELD = "csrf"
CSRF_HEADER = "X-CSRF-Token"
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
# What a form of another site can send without asking first.
_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data", "text/plain")
_ANYBODY = "anybody"

_bearer = HTTPBearer(auto_error=False, description="`etscope lab token add NAME` makes one.")
_Credentials = Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)]


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks. session: what the CSRF tokens of their forms are bound to."""

    name: str
    scopes: frozenset[str]
    by: Literal["token", "session", "loopback"]
    session: str = _ANYBODY

    def may(self, scope: str) -> bool:
        return any(scope in SCOPES[: SCOPES.index(one) + 1] for one in self.scopes)


class Gate:
    """Checks tokens and sessions of one lab; `app.state.gate`."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self.settings = settings
        self._database = database
        self._local = local_secret(settings.key).encode()
        self._sessions = URLSafeTimedSerializer(settings.key, salt="etscope.lab.session")
        self._forms = URLSafeTimedSerializer(settings.key, salt="etscope.lab.form")
        self._limiter = MovingWindowRateLimiter(MemoryStorage())
        self._failures = RateLimitItemPerMinute(settings.failures_per_minute)
        # Browsers keep one jar of cookies for all ports of a machine.
        self.cookie = f"etscope_lab_{hashlib.sha256(settings.key).hexdigest()[:8]}"

    # -- who

    def needs_tokens(self) -> bool:
        """Whether this lab is only for those with a token."""
        return self.settings.require_tokens or bool(self._database.tokens())

    def principal(self, request: Request, secret: str | None) -> Principal | None:
        """Who sent a request; None when it says nothing of that, and must. Raises `Refused`."""
        if secret is not None:
            if hmac.compare_digest(secret.encode(), self._local):
                return Principal("", frozenset(SCOPES), "token")
            token = self.token(request, secret)
            return Principal(token.name, frozenset(token.scopes), "token")
        if not self.needs_tokens():
            return Principal("", frozenset(SCOPES), "loopback")
        return self._of_session(request.cookies.get(self.cookie))

    def token(self, request: Request, secret: str) -> Token:
        """The token with this secret. Raises `Refused` for a wrong one, and for any when too many
        wrong ones came from the same address."""
        address = request.client.host if request.client else ""
        if not self._limiter.test(self._failures, address):
            raise Refused(
                429,
                "too many wrong tokens from this address",
                slug=LabError.slug,
                hint="wait a minute",
                headers={"Retry-After": "60"},
            )
        token = self._database.check_token(secret)
        if token is None:
            self._limiter.hit(self._failures, address)
            raise _unknown("this token is not valid, or not any more")
        return token

    def _of_session(self, cookie: str | None) -> Principal | None:
        if not cookie:
            return None
        try:
            said = self._sessions.loads(cookie, max_age=self.settings.session_seconds)
            name, fingerprint, session = said["name"], said["token"], said["session"]
        except (BadSignature, KeyError, TypeError):
            return None
        for token in self._database.tokens():
            if token.name == name and _is_good(token):
                if not hmac.compare_digest(_fingerprint(token), fingerprint):
                    return None  # another token of the same name
                return Principal(name, frozenset(token.scopes), "session", session)
        return None

    # -- sessions and forms

    def sign_in(self, request: Request, response: Response, token: Token) -> None:
        """Give the browser a session for a token; it ends with the token."""
        said = {
            "name": token.name,
            "token": _fingerprint(token),
            "session": secrets.token_urlsafe(16),
        }
        response.set_cookie(
            self.cookie,
            self._text(self._sessions.dumps(said)),
            max_age=self.settings.session_seconds,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )

    def sign_out(self, response: Response) -> None:
        response.delete_cookie(self.cookie, httponly=True, samesite="strict")

    def form_token(self, session: str) -> str:
        return self._text(self._forms.dumps(session))

    def is_form_token(self, session: str, text: str) -> bool:
        try:
            said = self._forms.loads(text, max_age=self.settings.session_seconds)
        except BadSignature:
            return False
        return isinstance(said, str) and hmac.compare_digest(said.encode(), session.encode())

    @staticmethod
    def _text(value: str | bytes) -> str:
        return value if isinstance(value, str) else value.decode()


def needs(scope: str) -> Callable[..., Awaitable[Principal]]:
    """A dependency: whoever asks may do this, and means it.

    A form (and a request by session that changes something) carries a CSRF token, in the field
    "csrf" or the header X-CSRF-Token: `csrf_token`. One with a Bearer token needs none, as browsers
    do not add that by themselves; and on the loopback, what is no form cannot come from another
    site, as `middleware.SameOrigin` has looked at where it comes from.
    """

    async def check(request: Request, credentials: _Credentials = None) -> Principal:
        gate: Gate = request.app.state.gate
        secret = None if credentials is None else credentials.credentials
        if secret is None and "authorization" in request.headers:
            raise _unknown("what says who asks is a Bearer token")
        who = await run_in_threadpool(gate.principal, request, secret)
        if who is None:
            raise _unknown("this needs a token")
        if not who.may(scope):
            raise Refused(
                403,
                f"this needs the scope {scope!r}, which the token {who.name!r} has not",
                slug=LabError.slug,
                hint=f"etscope lab token add NAME --scope {scope}",
            )
        request.state.principal = who
        if request.method not in _SAFE and who.by != "token":
            form = _content_type(request) in _FORMS
            if form or who.by == "session":
                await verify(request)
        return who

    return check


def csrf_token(request: Request) -> str:
    """For the field "csrf" of each form on a page that answers `request`."""
    gate: Gate = request.app.state.gate
    return gate.form_token(_session(request))


async def verify(request: Request) -> None:
    """Raise `Refused` (403) unless the request has the CSRF token of its session."""
    text: Any = request.headers.get(CSRF_HEADER)
    if text is None and _content_type(request) in _FORMS[:2]:
        text = (await request.form()).get(CSRF_FIELD)
    gate: Gate = request.app.state.gate
    if not isinstance(text, str) or not gate.is_form_token(_session(request), text):
        raise Refused(
            403,
            "this form is too old, or is not of this lab",
            slug=LabError.slug,
            hint="open the page again and repeat it",
        )


def _session(request: Request) -> str:
    who: Principal | None = getattr(request.state, "principal", None)
    return _ANYBODY if who is None else who.session


def _content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _unknown(message: str) -> Refused:
    return Refused(
        401,
        message,
        slug=LabError.slug,
        hint="etscope lab token add NAME makes one; a client sends $ETSCOPE_LAB_TOKEN",
        headers={"WWW-Authenticate": "Bearer"},
    )


def _is_good(token: Token) -> bool:
    return token.expires_at is None or token.expires_at > datetime.now(timezone.utc)


def _fingerprint(token: Token) -> str:
    return f"{token.created_at.isoformat()} {','.join(sorted(token.scopes))}"
