"""Users of an OpenID Connect provider: Authlib signs them in and checks their ID tokens."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
from authlib.integrations.base_client import OAuthError
from authlib.integrations.starlette_client import OAuth
from authlib.oidc.core import IDToken
from fastapi import Request
from fastapi.responses import Response
from joserfc.errors import JoseError

from etscope.errors import LabError
from etscope_lab.config import OidcConfig
from etscope_lab.server.errors import RequestError


@dataclass(frozen=True, slots=True)
class User:
    """A user of the provider. groups: those of the claim that have a grant."""

    name: str
    groups: tuple[str, ...]


class Provider:
    """An OpenID Connect provider. Each method raises `RequestError`: 401 for a refused user or
    token, 503 if the provider does not answer."""

    def __init__(self, config: OidcConfig) -> None:
        self._config = config
        issuer = config.issuer.rstrip("/")
        self._client = OAuth().register(
            "lab",
            client_id=config.client_id,
            client_secret=os.environ.get(config.secret_env),
            server_metadata_url=f"{issuer}/.well-known/openid-configuration",
            client_kwargs={"scope": config.request, "code_challenge_method": "S256"},
        )

    async def redirect(self, request: Request, callback: str) -> Response:
        """Send the browser to the provider, which sends it to `callback`."""
        async with _errors():
            response: Response = await self._client.authorize_redirect(request, callback)
            return response

    async def user_of_code(self, request: Request) -> User:
        """Return the user whom the provider sent back with a code."""
        async with _errors():
            options = await self._claims()
            token = await self._client.authorize_access_token(request, claims_options=options)
            return self._user(token.get("userinfo") or {})

    async def user_of_token(self, secret: str) -> User:
        """Return the user of an ID token for this lab, which a program sends as its token."""
        async with _errors():
            options = await self._claims()
            return self._user(
                await self._client.parse_id_token(
                    {"id_token": secret}, None, claims_options=options, claims_cls=IDToken
                )
            )

    async def _claims(self) -> Mapping[str, Any]:
        """Return the claims that a token for this lab must have."""
        issuer = (await self._client.load_server_metadata())["issuer"]
        return {
            "iss": {"essential": True, "value": issuer},
            "aud": {"essential": True, "value": self._config.client_id},
        }

    def _user(self, claims: Mapping[str, Any]) -> User:
        verified = claims.get("email") if claims.get("email_verified", True) is True else None
        name = verified or claims.get("sub")
        if not isinstance(name, str) or not name:
            raise ValueError("the ID token has no subject")
        found = claims.get(self._config.claim) or ()
        groups = [found] if isinstance(found, str) else [str(one) for one in found]
        granted = [grant.group for grant in self._config.grants]
        return User(name[:200], tuple(group for group in granted if group in groups))


@asynccontextmanager
async def _errors() -> AsyncIterator[None]:
    try:
        yield
    except httpx2.HTTPError as error:
        raise RequestError(
            503, f"the sign-in provider does not answer: {error}", slug=LabError.slug
        ) from error
    except (OAuthError, JoseError, ValueError, KeyError, TypeError) as error:
        raise RequestError(
            401, f"the sign-in provider's answer is not valid: {error}", slug=LabError.slug,
            hint="sign in again",
        ) from error  # fmt: skip
