"""What all tests share."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import HealthCheck, settings

# A shared machine makes any limit of time flaky; the same examples each time make a failure
# repeatable.
settings.register_profile(
    "etscope",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("etscope")

# Hypothesis also tries constants of the project's modules that are imported by then: which these
# are depends on the tests that ran before in the same process. No setting turns that off.
with suppress(ImportError, AttributeError):
    from hypothesis.internal.conjecture import providers

    _none = providers.Constants()
    assert callable(providers._get_local_constants)
    providers._get_local_constants = lambda: _none
