"""Profiles of the methods of a run."""

from __future__ import annotations

from etscope.analysis.profile.profile import MethodProfile
from etscope.analysis.profile.trace import Trace
from etscope.errors import MissingDataError

__all__ = ["chosen_profiles"]


def chosen_profiles(trace: Trace, method: str | None) -> list[MethodProfile]:
    """Return the profile of each method that ran, or of one. Raises `MissingDataError` if no such
    method ran."""
    profiles = trace.profiles()
    chosen = [profile for profile in profiles if method in (None, profile.method)]
    if chosen:
        return chosen
    known = [profile.method for profile in profiles if profile.method is not None]
    if known:
        hint = f"methods that ran: {', '.join(known)}"
    elif profiles:
        hint = "name the ETRecord or the program, too: the dump does not name the method"
    else:
        hint = "the dump has no Method::execute event: run a method with the tracer on"
    wanted = f"of the method {method!r}" if profiles else "of any method"
    raise MissingDataError(f"the dump has no run {wanted}", hint=hint)
