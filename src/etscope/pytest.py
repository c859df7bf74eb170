"""A plugin of pytest: export a model in a test, run it, and assert what it costs.

    def test_my_model(etscope_run):
        ran = etscope_run(MyModel(), (torch.randn(1, 3, 224, 224),), backend="xnnpack")
        ran.assert_close(sqnr=60)
        ran.assert_delegated(0.95)
        ran.assert_size(max="2%")

or the same by a marker, for every run of a test::

    @pytest.mark.etscope(sqnr=60, delegated=0.95, size="2%", latency="5%")

Limits in percent are of a baseline: a JSON file beside the test, which `pytest --etscope-update`
writes. "Cannot tell" fails, too, under a name of its own, unless [tool.etscope.check] in
pyproject.toml has `allow-unknown = true`.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from etscope.analysis.check.compare import Row
    from etscope.analysis.check.measured import Amount, Measured
    from etscope.analysis.profile.trace import Capture
    from etscope.check import Checked, CheckOptions

__all__ = ["CannotTell", "EtscopeRun", "etscope_run"]

_BASELINES = "etscope-baselines"
_SHOWN = 5  # parts in a message
_CANNOT_TELL = ("etscope", "cannot tell")


class CannotTell(AssertionError):
    """Nothing was measured, or too unsteadily: neither a pass nor a failure of the model."""


@dataclass(frozen=True)
class EtscopeRun:
    """A model that was exported and run. folder: of the run, for commands as `etscope explain`."""

    folder: Path
    _root: Path
    _baseline: Path
    _updates: bool
    _options: CheckOptions

    @cached_property
    def capture(self) -> Capture:
        """The run and its files, as `etscope.capture.open_capture` returns them."""
        from etscope.capture import open_capture

        return open_capture(self.folder)

    @cached_property
    def measured(self) -> Measured:
        """All quantities, as `etscope.check` measures them."""
        return self._measured_only.new

    @cached_property
    def _measured_only(self) -> Checked:
        from etscope.check import check

        return check(None, self.capture, options=self._options)

    def assert_close(self, sqnr: float = 30.0) -> None:
        """Assert that the outputs have at least this SQNR to PyTorch's outputs, in dB."""
        for amount in self._amounts("sqnr"):
            if not amount.value >= sqnr:
                said = (
                    f"SQNR of the outputs is {amount.value:.1f} dB, at least {sqnr:g} is asked for"
                )
                raise AssertionError(f"{said}\n{self._wrong_operator()}{self._see('numerics')}")

    def assert_delegated(self, share: float, except_: Collection[str] = ()) -> None:
        """Assert that delegates compute this share of the nodes. except_: patterns of operators
        that do not count, as "mean" or "aten.slice*"."""
        for amount in self._amounts("delegated"):
            whole = sum(part.value for part in amount.parts) / max(1 - amount.value, 1e-12)
            left = [one for one in amount.parts if not _matches(one.name, except_)]
            excepted = sum(one.value for one in amount.parts) - sum(one.value for one in left)
            count = whole - excepted if amount.parts else 1.0
            outside = sum(one.value for one in left)
            if count > 0 and 1 - outside / count < share:
                raise AssertionError(
                    f"delegates compute {1 - outside / count:.1%} of the nodes, at least "
                    f"{share:.1%} is asked for; outside are:\n{_listed(left)}"
                    f"{self._see('graph', '--partition')}"
                )

    def assert_size(self, max: str, baseline: str | Path | None = None) -> None:
        """Assert the most bytes of the program: "500KiB", or "2%" above the baseline."""
        self._assert_bytes("size", max, baseline)

    def assert_memory(self, max: str, baseline: str | Path | None = None) -> None:
        """Assert the most planned memory: "500KiB", or "2%" above the baseline."""
        self._assert_bytes("memory", max, baseline)

    def assert_latency(self, max: str, baseline: str | Path | None = None) -> None:
        """Assert that the run takes at most "5%" longer than the baseline, by the statistics of
        `etscope diff`; `CannotTell` if it may or may not."""
        self._compare("time", max, baseline)

    def assert_no_findings(self, level: str = "problem") -> None:
        """Assert that `etscope explain` has no finding of this severity ("problem", "cost"), or of
        a worse one."""
        from etscope.errors import UsageError
        from etscope.explain import explain
        from etscope.model.finding import SEVERITIES

        names = [one.value for one in SEVERITIES]
        if level not in names:
            raise UsageError(f"level is {level!r}", hint=f"levels are: {', '.join(names)}")
        trace = self.capture.trace
        assert trace is not None  # the fixture ran the model
        found = [
            one
            for method in explain(trace)
            for one in method.findings
            if names.index(one.severity.value) <= names.index(level)
        ]
        if found:
            sentences = "\n".join(f"  {one.sentence}" for one in found[:_SHOWN])
            raise AssertionError(f"{len(found)} findings:\n{sentences}{self._see('explain')}")

    def _amounts(self, quantity: str) -> list[Amount]:
        """Return the amounts of a quantity, by method. Raises `CannotTell` if there are none."""
        found = [one for one in self.measured.amounts if one.quantity == quantity]
        if not found:
            self._cannot_tell(self.measured.missing.get(quantity, f"{quantity} was not measured"))
        return found

    def _cannot_tell(self, reason: str) -> None:
        if not self._options.allow_unknown:
            raise CannotTell(f"{reason}{self._see('inspect')}")

    def _assert_bytes(self, quantity: str, max: str, baseline: str | Path | None) -> None:
        from etscope.capture.kept_runs import size_of
        from etscope.units import format_bytes

        if max.strip().endswith("%"):
            self._compare(quantity, max, baseline)
            return
        for amount in self._amounts(quantity):
            if amount.value > size_of(max):
                raise AssertionError(
                    f"{quantity} is {format_bytes(amount.value)}, at most {max} is asked for; its "
                    f"parts are:\n{_listed(amount.parts)}{self._see('info')}"
                )

    def _compare(self, quantity: str, max: str, baseline: str | Path | None) -> None:
        """Compare a quantity with the baseline. Raises `AssertionError` if it is worse."""
        from etscope.analysis.check.measured import QUANTITIES
        from etscope.check import Outcome, check, read_baseline

        path = self._baseline if baseline is None else Path(baseline)
        if self._updates:
            self._write(path)
        if not path.is_file():
            raise CannotTell(
                f"the baseline {path} does not exist: write it with pytest --etscope-update"
            )
        limits: dict[str, Any] = {one.option: "off" for one in QUANTITIES}
        limits |= {one.option: max for one in QUANTITIES if one.name == quantity}
        checked = check(read_baseline(path), self.measured, options=self._options, **limits)
        rows = [row for row in checked.rows if row.quantity.name == quantity]
        for row in rows:
            if row.outcome is Outcome.WORSE:
                parts = "".join(f"\n  {part.name}: {part.text or part.value}" for part in row.parts)
                raise AssertionError(f"{_changed(row)}{parts}{self._see('inspect')}")
            if row.outcome is not Outcome.OK:
                self._cannot_tell(f"{_changed(row)}: {row.reason or row.outcome.value}")
        if not rows:
            self._cannot_tell(f"{quantity} was not measured on both sides")

    def _write(self, path: Path) -> None:
        """Write a baseline without the paths of this machine: it goes into the repository."""
        from etscope.formats.bytes.files import atomic_write

        text = json.dumps(self._measured_only.to_json(), indent=1)
        for here, short in (
            (str(self.folder), self.folder.name),
            (f"{self._root.as_posix()}/", ""),
        ):
            text = text.replace(json.dumps(here)[1:-1], short)
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as out:
            out.write(f"{text}\n".encode())

    def _wrong_operator(self) -> str:
        """Name the operator that goes wrong: run once more with logged values."""
        from etscope.run import run

        paths = self.measured.paths
        done = run(
            paths["program"],
            etrecord=paths["record"],
            debug_level="intermediate_outputs",
            iterations=1,
        )
        done.save(self.folder)
        for row in done.inspector().diagnose_numerics().wrong[:1]:
            line = f", {row.lines[0]}" if row.lines else ""
            return f"  first wrong operator: {row.label}{line}"
        return "  no single operator is wrong: the error is of all of them together"

    def _see(self, verb: str, *options: str) -> str:
        return f"\n  see: {shlex.join(['etscope', verb, str(self.folder), *options])}"


def _matches(name: str, patterns: Collection[str]) -> bool:
    return any(
        fnmatchcase(name, one) or fnmatchcase(name, one.removeprefix("aten.")) for one in patterns
    )


def _listed(parts: Collection[Any]) -> str:
    shown = [f"  {one.name} {one.value:,.0f} {one.source or ''}".rstrip() for one in parts]
    more = len(shown) - _SHOWN
    return "\n".join([*shown[:_SHOWN], *([f"  and {more} more"] if more > 0 else [])])


def _changed(row: Row) -> str:
    base, new = row.texts
    return f"{row.title}: {base} → {new} ({row.change or 'new'}, at most {row.limit.text})"


# -- the plugin


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("etscope").addoption(
        "--etscope-update",
        action="store_true",
        help=f"write the baselines of etscope_run ({_BASELINES}/ in the folder of the tests)",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "etscope(sqnr=, delegated=, size=, memory=, latency=, findings=): limits of the runs that "
        "etscope_run makes in this test",
    )


@pytest.fixture
def etscope_run(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., EtscopeRun]:
    """Exports a model, runs it, and returns its `EtscopeRun`.

    etscope_run(model, inputs, name=None, iterations=20, **options): `etscope.export.export` takes
    the options, as `backend="xnnpack"`. name: of the run in a test that makes several.
    """

    def made(
        model: Any, inputs: Any = None, *, name: str = "", iterations: int = 20, **options: Any
    ) -> EtscopeRun:
        from etscope.check import read_options
        from etscope.export import export
        from etscope.run import run

        own = re.sub(r"[^\w.-]+", "-", "-".join(filter(None, (request.node.name, name)))).strip("-")
        folder = tmp_path_factory.mktemp("etscope") / own
        paths = export(model, inputs, **options).save(folder / "export", bundle=False)
        done = run(paths[0], etrecord=paths[1], iterations=iterations)
        done.save(folder)
        baseline = request.path.parent / _BASELINES / request.path.stem / f"{own}.json"
        updates = request.config.getoption("--etscope-update")
        root = request.config.rootpath
        ran = EtscopeRun(folder, root, baseline, updates, read_options(root))
        marker = request.node.get_closest_marker("etscope")
        if marker is not None:
            _assert_all(ran, **marker.kwargs)
        return ran

    return made


def _assert_all(ran: EtscopeRun, **limits: Any) -> None:
    asserts: dict[str, Callable[[Any], None]] = {
        "sqnr": ran.assert_close,
        "delegated": ran.assert_delegated,
        "size": ran.assert_size,
        "memory": ran.assert_memory,
        "latency": ran.assert_latency,
        "findings": ran.assert_no_findings,
    }
    for name, limit in limits.items():
        if name not in asserts:
            raise pytest.UsageError(f"the marker etscope has {', '.join(asserts)}, not {name}")
        asserts[name](limit)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.excinfo is not None and call.excinfo.errisinstance(CannotTell):
        report.user_properties.append(_CANNOT_TELL)  # also in JUnit XML, and from xdist's workers
    return report


def pytest_report_teststatus(
    report: pytest.TestReport,
) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
    if report.failed and _CANNOT_TELL in map(tuple, getattr(report, "user_properties", ())):
        return "cannot tell", "?", ("CANNOT TELL", {"yellow": True})
    return None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write the reasons of such tests: pytest shows the messages of failed ones only."""
    found = terminalreporter.stats.get("cannot tell", [])
    if found:
        terminalreporter.section("cannot tell")
    for report in found:
        terminalreporter.write_line(f"{report.nodeid}\n  {report.longrepr.reprcrash.message}")
