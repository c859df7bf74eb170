"""A token traded for a session, by a form."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from etscope.errors import UsageError
from etscope.lab.server.errors import Refused
from etscope.lab.server.failures import sign_in_page
from etscope.lab.server.security import Gate, csrf_token, verify

router = APIRouter(include_in_schema=False)
_LONGEST = 2000  # of a place to go to


@router.get("/sign-in", response_model=None)
def form(request: Request, next: str = "/") -> Response:
    return sign_in_page(csrf_token(request), own_place(next))


@router.post("/sign-in", response_model=None)
async def sign_in(
    request: Request,
    token: Annotated[str, Form(max_length=500)],
    next: Annotated[str, Form()] = "/",
) -> Response:
    gate: Gate = request.app.state.gate
    place = own_place(next)
    try:
        await verify(request)
        found = await run_in_threadpool(gate.token, request, token.strip())
    except Refused as error:
        shown = error if error.status != 401 else UsageError(error.message)
        page = sign_in_page(csrf_token(request), place, error=shown, status=error.status)
        page.headers.update({k: v for k, v in error.headers.items() if k == "Retry-After"})
        return page
    answer = RedirectResponse(place, 303)
    gate.sign_in(request, answer, found)
    return answer


@router.post("/sign-out", response_model=None)
async def sign_out(request: Request) -> Response:
    """Whoever may send this request is signed in; `SameOrigin` has looked where it comes from."""
    gate: Gate = request.app.state.gate
    answer = RedirectResponse("/sign-in", 303)
    gate.sign_out(answer)
    return answer


def own_place(place: str) -> str:
    """A path of this server: nothing that a browser would take for another one."""
    odd = any(ord(char) <= 0x20 or char in "\\\x7f" for char in place)
    if odd or len(place) > _LONGEST or not place.startswith("/") or place.startswith("//"):
        return "/"
    return place
