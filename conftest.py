"""Settings of all tests, and a mark for each folder: `-m integration`, `-m "not e2e"`."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.browser.launched import chromium
from tests.support.fuzz import IS_NIGHT, SEED
from tests.support.processes import commands_of

__all__ = ["chromium"]

# A shared machine makes any limit of time flaky; the same examples each time make a failure
# repeatable. Those of the night are others each time.
settings.register_profile(
    "etscope",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "nightly", settings.get_profile("etscope"), derandomize=False, max_examples=2000
)
settings.load_profile("etscope")

# Workers share the cores, and threads of torch that wait for their turn compute while they wait:
# exports take a third longer.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# What somebody measured of this machine must not show in results, and tests keep no runs.
os.environ["ETSCOPE_CALIBRATION"] = os.environ["ETSCOPE_RUNS"] = ""

# Hypothesis also tries constants of the project's modules that are imported by then: which these
# are depends on the tests that ran before in the same process. No setting turns that off.
with suppress(ImportError, AttributeError):
    from hypothesis.internal.conjecture import providers

    _none = providers.Constants()
    assert callable(providers._get_local_constants)
    providers._get_local_constants = lambda: _none


def pytest_configure(config: pytest.Config) -> None:
    """Note what the seconds of tests go into, where somebody will read it; and take the examples of
    hypothesis from the seed of the night."""
    if IS_NIGHT:
        settings.load_profile("nightly")
        config.option.hypothesis_seed = SEED
    if config.getoption("xmlpath"):
        from tests.support.costs import Costs

        config.pluginmanager.register(Costs())


_FOLDERS = {"unit", "integration", "e2e", "attacks", "parity", "contract"}
_TESTS = [Path(__file__).parent / place for place in ("tests", "packages/etscope-lab/tests")]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with the name of its folder below tests/."""
    for item in items:
        for tests in _TESTS:
            if item.path.is_relative_to(tests):
                folder = item.path.relative_to(tests).parts[0]
                if folder in _FOLDERS:
                    item.add_marker(getattr(pytest.mark, folder))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the commands of a failed test with all that they said, and how to repeat the night."""
    report = yield
    if report.failed and call.excinfo is not None:
        report.sections += [("Command", told) for told in commands_of(call.excinfo)]
    if report.failed and (IS_NIGHT or item.get_closest_marker("nightly")):
        command = f"ETSCOPE_FUZZ_SEED={SEED} python -m pytest {item.nodeid!r}"
        report.sections.append(("To repeat it", command))
    return report


@pytest.fixture(autouse=True)
def _gradient_mode_kept() -> Iterator[None]:
    """Fail the test that leaves torch's gradient mode changed, not one that runs after it."""
    yield
    torch = sys.modules.get("torch")
    if torch is not None and not torch.is_grad_enabled():
        torch.set_grad_enabled(True)
        pytest.fail("the test left torch.is_grad_enabled() False")


# What Dask's nanny sets for its worker in the process that starts it, and leaves there.
_OF_NANNY = ("MALLOC_TRIM_THRESHOLD_", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS",
             "PYTHONHASHSEED")  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _environment_kept() -> Iterator[None]:
    """Take back what the tests of a module left in the environment: processes that later ones start
    would be other than those of the first."""
    before = {name: os.environ.get(name) for name in _OF_NANNY}
    yield
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
