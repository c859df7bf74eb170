"""A server's errors in our words: what is wrong, and what to do."""

from __future__ import annotations

from etscope.errors import (
    DeviceLost,
    EtscopeError,
    MismatchError,
    MissingDataError,
    RuntimeFailure,
    UsageError,
    VersionError,
)
from etscope.etdb.protocol.launch import PROGRAM, TOKEN_VARIABLE, Channel
from etscope.etdb.protocol.messages import VERSION, Code, Kind
from etscope.run.failure_log import explained, relevant

_LACKS = {
    "operator": "give the library that registers it (--library), or build etdb-server with it",
    "backend": "build etdb-server with it, or give the library that registers it (--library)",
}
_NO_WEIGHTS = "external_data_map is null"
_LARGER = "start it with the program (etdb-server PROGRAM), or with a larger --max-upload"


def failure_of(code: int, message: str, log: str, kind: Kind, place: str) -> EtscopeError:
    """The error of a request that the server refused."""
    match code:
        case Code.VERSION:
            return VersionError(
                f"the server at {place} does not speak version {VERSION} of the protocol: "
                f"{message}",
                hint="use an etdb-server of this release of etscope",
            )
        case Code.TOKEN:
            return UsageError(
                f"the server at {place} refuses the token: {message}",
                hint=f"give the one that it was started with in ${TOKEN_VARIABLE}",
            )
        case Code.STATE:
            return UsageError(f"not now: {message}")
        case Code.INPUTS:
            return MismatchError(f"the inputs do not fit: {message}")
        case Code.VALUE if kind == Kind.WRITE:
            return UsageError(f"nothing was written: {message}")
        case Code.VALUE:
            return MissingDataError(message)
        case Code.LIMIT:
            return RuntimeFailure(
                f"the server at {place} has its limits: {message}",
                log=relevant(log),
                hint=None if kind == Kind.HELLO else _LARGER,
            )
        case Code.PROGRAM:
            return _of_program(message, log)
    found = explained(log)
    if found is None:
        return RuntimeFailure(message or f"error {code}", log=relevant(log))
    return RuntimeFailure(found[0], log=relevant(log), hint=found[1])


def lost(channel: Channel, reason: str) -> DeviceLost:
    """The error of a connection that ended without a word."""
    text = f"the runner ({channel.place}) is gone: {reason}"
    hints = {
        "SIGKILL": "the system may have run out of memory",
        "code 127": f"put {PROGRAM} on the PATH there, name it (--server PATH), "
        "or have it brought there (--push PATH)",
    }
    hint = next((text for sign, text in hints.items() if sign in reason), None)
    return DeviceLost(text, log=relevant(channel.log()), hint=hint)


def _of_program(message: str, log: str) -> RuntimeFailure:
    if _NO_WEIGHTS in log:
        return RuntimeFailure(
            "weights of this program are in a file beside it (.ptd)",
            log=relevant(log),
            hint="name that file (--data), to target runtime or to etdb-server",
        )
    found = explained(f"{log}\n{message}")
    if found is None:
        return RuntimeFailure(f"the program cannot be loaded: {message}", log=relevant(log))
    what, hint = found
    if "backend" in what and "does not have" in what:
        hint = f"{_LACKS['backend']}; {hint}"
    elif "no kernel" in what:
        hint = _LACKS["operator"]
    return RuntimeFailure(what, log=relevant(log), hint=hint)
