"""Tokens, for those with the scope "admin"."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Request
from fastapi.responses import Response
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from etscope.errors import UsageError
from etscope.lab.server.errors import Refused, answers
from etscope.lab.server.routes._common import Admin, Moment, json_only, lab_of

router = APIRouter(tags=["tokens"])

TOKEN_NAME = r"^[0-9A-Za-z][0-9A-Za-z._@-]*$"
_Name = Annotated[str, Path(pattern=TOKEN_NAME, max_length=100)]


class TokenBody(BaseModel):
    """A token without its secret, of which the lab keeps only a hash."""

    name: str
    scopes: list[str]
    created_at: AwareDatetime
    expires_at: AwareDatetime | None


class TokenWish(BaseModel):
    """A token to make."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=TOKEN_NAME, max_length=100)
    scopes: list[Literal["read", "submit", "admin"]] = Field(["read"], min_length=1, max_length=3)
    expires_at: Moment | None = None


class NewToken(BaseModel):
    """secret: what the client sends. It is shown here and nowhere else."""

    name: str
    secret: str


@router.get("/tokens", response_model=list[TokenBody], responses=answers())
def list_tokens(request: Request, _: Admin) -> list[TokenBody]:
    return [
        TokenBody(
            name=one.name,
            scopes=sorted(one.scopes),
            created_at=one.created_at,
            expires_at=one.expires_at,
        )
        for one in lab_of(request).database.tokens()
    ]


@router.post(
    "/tokens",
    status_code=201,
    response_model=NewToken,
    dependencies=[Depends(json_only)],
    responses=answers(409, 413, 415, 422),
)
def add_token(request: Request, _: Admin, wish: TokenWish) -> NewToken:
    database = lab_of(request).database
    try:
        secret = database.add_token(wish.name, wish.scopes, wish.expires_at)
    except UsageError as error:
        raise Refused(409, error.message, hint=error.hint) from error
    return NewToken(name=wish.name, secret=secret)


@router.delete("/tokens/{name}", status_code=204, responses=answers(404, 422))
def revoke_token(request: Request, _: Admin, name: _Name) -> Response:
    """The token is worth nothing from now on, and so are the sessions that were given for it."""
    lab_of(request).database.revoke(name)
    return Response(status_code=204)
