"""An app as the runner: it executes a program in its own way, on a device or on this machine, and
leaves an ETDump, results, or both.

An app is described by options (`App`), such as ExecuTorch's benchmark app for Android
(`extension/benchmark/android`, which writes `benchmark_results.json` into its own folder and the
dump to /data/local/tmp/result.etdump):

    package: org.pytorch.minibench
    start: am start -W -S -n org.pytorch.minibench/.BenchmarkActivity --es model_dir {folder}
      --ei num_iter {iterations} --ei num_warm_up_iter {warmup}
    results: files/benchmark_results.json
    dump: /data/local/tmp/result.etdump

or its `executor_runner`: `start: executor_runner --model_path {program} --inputs {inputs}
--num_executions {executions} --etdump_path {dump}`.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.errors import (
    EtscopeError,
    FormatError,
    LabError,
    MissingDataError,
    RuntimeFailure,
    UsageError,
)
from etscope.formats.app_report import AppReport, read_app_report
from etscope.formats.etdump.board_log import files_in_log
from etscope.formats.etdump.reader import ETDump, read_etdump
from etscope.formats.etdump.writer import write_etdump
from etscope.model.event_table import LOAD_METHOD
from etscope.run._runner_host import NATIVE, Elsewhere, sha256_of
from etscope.run.execute import select_runs
from etscope.run.job import DEBUG_BUFFER, ETDUMP, NONE, RESULT, Job, stored
from etscope.run.process import LOG, check_signal, failure, timed_out

__all__ = ["APP", "App", "AppHost"]

_SECONDS = 30.0  # for stopping an app
APP = "app"  # as the runner in the facts of a run
_EXECUTE, _METHOD = "Execute", "Method::execute"
_ENDED = 97  # exit status of the script: the app's process is gone, and left nothing
_PLACES = (
    "program", "data", "inputs", "folder", "dump", "results", "debug_buffer", "method",
    "iterations", "warmup", "executions", "threads",
)  # fmt: skip
_PLACE = re.compile(rf"(?<!\$)\{{({'|'.join(_PLACES)})\}}")
_PACKAGE = re.compile(r"[A-Za-z]\w*(\.[A-Za-z]\w*)+")
# `am` ends with 0 whatever happens.
_NOT_STARTED = re.compile(
    r"^(?:Error(?: type \d+|: .*)|.*INSTRUMENTATION_FAILED: .*)$", re.MULTILINE
)
_CRASHED = re.compile(r"INSTRUMENTATION_RESULT: shortMsg=(.*)|^(FAILURES!!!)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """The options of an app.

    start: a script for the device's shell, or the words of a command for a device without one. It
        names what it needs: {program}, {data}, {inputs} (files of raw bytes, with commas between),
        {folder} (which holds them), {method}, {iterations}, {warmup}, {executions} (both together),
        {threads}, and the files to write: {dump}, {debug_buffer}, {results}.
    dump, debug_buffer, results: where the app writes these files instead; "-" for a dump that it
        prints, as boards do. Paths that are not absolute are in the folder of `package`.
    package: an Android app, which `start` starts. It is waited for until its results, or the dump,
        are complete, then stopped. install: its .apk on this machine, which is installed if the
        device has another one.
    tick_ns: nanoseconds of a tick in the dump, if the app's clock has other units.
    """

    start: str | Sequence[str]
    dump: str | None = None
    debug_buffer: str | None = None
    results: str | None = None
    package: str | None = None
    install: str | None = None
    tick_ns: float = 1.0

    @classmethod
    def of(cls, given: Any) -> App:
        """Return the app of a mapping of options. Raises `UsageError`."""
        known = {one.name for one in fields(cls)}
        if not isinstance(given, Mapping) or not given.get("start"):
            raise UsageError("an app is a mapping of options with `start`, the command to run")
        if unknown := sorted(set(given) - known):
            raise UsageError(
                f"an app has no option {unknown[0]}",
                hint=f"its options: {', '.join(sorted(known))}",
            )
        app = cls(**given)
        words = [app.start] if isinstance(app.start, str) else app.start
        texts = [app.dump, app.debug_buffer, app.results, app.package, app.install, *words]
        if not all(isinstance(one, (str, type(None))) for one in texts):
            raise UsageError("the options of an app are texts")
        if not isinstance(app.tick_ns, (int, float)) or not app.tick_ns > 0:
            raise UsageError(f"tick_ns is a number above 0, not {app.tick_ns!r}")
        if app.package is not None and not _PACKAGE.fullmatch(app.package):
            raise UsageError(f"not the name of an Android package: {app.package!r}")
        if app.package is not None and not (app.results or app.dump):
            raise UsageError("an app with a package needs `results` or `dump`, to know its end")
        if app.install is not None and app.package is None:
            raise UsageError("install goes with package, the name of the Android app")
        if app.install is not None and not Path(app.install).expanduser().is_file():
            raise UsageError(f"the app's package is not there: {app.install}")
        if not any(map(app.leaves, ("dump", "results"))):
            raise UsageError("the app leaves nothing: name {dump} or {results} in `start`")
        return app

    @property
    def prints_dump(self) -> bool:
        """True for a board, whose log has the dump, and may have counters and allocators."""
        return self.dump == "-"

    def leaves(self, what: str) -> bool:
        """True if the app writes that file: "dump", "debug_buffer" or "results"."""
        text = self.start if isinstance(self.start, str) else " ".join(self.start)
        return getattr(self, what) is not None or f"{{{what}}}" in text


@dataclass(frozen=True, slots=True, eq=False)
class AppHost(Elsewhere):
    """A device with an app in place of the native runner.

    marks: after a job, why its times say less than a runner's, in words.
    """

    app: App = field(kw_only=True)
    marks: list[str] = field(default_factory=list, kw_only=True)
    _numbers: Iterator[int] = field(default_factory=count, kw_only=True, repr=False)

    def missing(self, runner: str) -> str | None:
        return None if runner == NATIVE else "the device's app runs the programs"

    def execute(self, job: Job, folder: Path, runner: str, timeout: float | None) -> None:
        if len(job.calls) != 1 or job.generation is not None or job.calls[0].case is not None:
            raise UsageError("an app executes one method on one set of inputs")
        for wanted, what in ((job.trace, "dump"), (job.debug_level != NONE, "debug_buffer")):
            if wanted and not self.app.leaves(what):
                raise UsageError(f"the device's app leaves no {what.replace('_', ' ')}")
        there = self._send_files(job, folder)
        if self.app.install is not None:
            self._install(Path(self.app.install).expanduser(), timeout)
        try:
            ended = self.carrier.call(self._command(job, there), timeout)
        except TimeoutError as error:
            raise timed_out(timeout, str(error)) from error
        finally:
            self._clean()
        (folder / LOG).write_text(ended.log, encoding="utf-8")
        self._check(ended.code, ended.log)
        try:
            self._collect(job, folder, there, ended.log)
        except FormatError as error:
            raise failure(f"a file of the app is damaged: {error.message}", ended.log) from error

    def _collect(self, job: Job, folder: Path, there: Mapping[str, str], log: str) -> None:
        """Copy the files that the app left, and write the result that a runner would have left."""
        names = {there[what]: what for what in ("dump", "debug_buffer", "results")}
        self.carrier.pull(list(names), folder)
        for name, what in names.items():
            if (folder / name).is_file():
                target = {"dump": ETDUMP, "debug_buffer": DEBUG_BUFFER}.get(what, name)
                (folder / name).replace(folder / target)
        if self.app.prints_dump and (printed := files_in_log(folder / LOG)):
            dumps = [name for name in printed if "debug" not in name]
            for name, content in printed.items():
                (folder / (ETDUMP if name in dumps else DEBUG_BUFFER)).write_bytes(content)
        if job.debug_level == NONE:
            (folder / DEBUG_BUFFER).unlink(missing_ok=True)
        self._conclude(job, folder, folder / there["results"], log)

    def _send_files(self, job: Job, folder: Path) -> dict[str, str]:
        """Push the files of a job; return what stands for each of `_PLACES` in a command."""
        names, sums = self._named(job)
        call, number = job.calls[0], next(self._numbers)
        inputs = []
        for index, value in enumerate(one for one in call.inputs if one is not None):
            path = folder / f"input-{index}.raw"
            path.write_bytes(stored(np.asarray(value)))
            inputs.append(path)
            names[path], sums[path] = path.name, sha256_of(path)
        self._push(names, sums)
        # New names each time: not every device lets files be removed.
        return {
            "program": names[job.program],
            "data": "" if job.data is None else names[job.data],
            "inputs": ",".join(path.name for path in inputs),
            "folder": ".",
            **{what: f"{number}-{what}" for what in ("dump", "results", "debug_buffer")},
            "method": call.method,
            "iterations": str(call.iterations),
            "warmup": str(call.warmup),
            "executions": str(call.executions),
            "threads": str(job.threads or ""),
        }

    # -- the app's command

    def _command(self, job: Job, there: Mapping[str, str]) -> list[str]:
        app = self.app
        if not isinstance(app.start, str):
            return [_PLACE.sub(lambda place: there[place[1]], word) for word in app.start]
        files = ("program", "dump", "debug_buffer", "results")

        def shown(place: re.Match[str]) -> str:
            """A place in a script; names of files become absolute, as an app has another folder."""
            name, text = place[1], there[place[1]]
            if name == "folder":
                return '"$PWD"'
            if name in files or (name in ("data", "inputs") and text):
                return ",".join(f'"$PWD"/{shlex.quote(one)}' for one in text.split(","))
            return shlex.quote(text)

        lines = [_PLACE.sub(shown, app.start), "c=$?"]
        copies = []
        for what in ("dump", "debug_buffer", "results"):
            place = getattr(app, what)
            if place is not None and place != "-":
                copies.append(f"{self._as_app(place, 'cat')} >{shlex.quote(there[what])} || true")
        if app.package is not None:
            for place in self._places():
                lines.insert(0, f"{self._as_app(place, 'rm -f')} 2>/dev/null")
                if place.startswith("/"):  # apps may write, but not make files in /data/local/tmp
                    there_is = f"{{ : >{shlex.quote(place)} && chmod 666 {shlex.quote(place)}; }}"
                    lines.insert(1, f"{there_is} 2>/dev/null")
            lines[:0] = ["chmod -R a+rX ."]
            lines.append(self._waiting(app.results or app.dump or ""))
        return ["sh", "-c", "\n".join([*lines, *copies, "exit $c"])]

    def _waiting(self, place: str) -> str:
        """A script that waits until a file of the app is complete: it has the size of a second
        before. If the app's process is gone by then, it ends with `_ENDED`."""
        return (
            "old=; gone=0; while [ $c = 0 ]; do\n"
            f"new=$({self._as_app(place, 'wc -c')} 2>/dev/null)\n"
            'case $new in 0\\ *|0|"") ;; "$old") break ;; esac; old=$new\n'
            f"pidof {self.app.package} >/dev/null || gone=$((gone + 1))\n"
            f'[ $gone -lt 3 ] || {{ [ -n "$new" ] || logcat -d -b crash -t 30 2>/dev/null; '
            f"exit {_ENDED}; }}; sleep 1; done"
        )

    def _as_app(self, place: str, command: str) -> str:
        """A command on a file of the app: with its rights, if the file is in its folder."""
        is_own = self.app.package is not None and not place.startswith("/")
        return (f"run-as {self.app.package} " if is_own else "") + f"{command} {shlex.quote(place)}"

    def _places(self) -> list[str]:
        given = (self.app.dump, self.app.debug_buffer, self.app.results)
        return [one for one in given if one is not None and one != "-"]

    def _clean(self) -> None:
        """Stop an Android app, which does not end with its script, and remove its files."""
        if self.app.package is not None:
            removed = [self._as_app(place, "rm -f") for place in self._places()]
            script = "; ".join([f"am force-stop {self.app.package}", *removed])
            with suppress(EtscopeError, TimeoutError):  # a lost device is reported by the job
                self.carrier.call(["sh", "-c", script], _SECONDS)

    def _install(self, file: Path, timeout: float | None) -> None:
        name = f"app{file.suffix}"
        self._push({file: name}, {file: sha256_of(file)})
        package = self.app.package
        # An installed package is kept as it was sent.
        script = (
            f'p=$(pm path {package} 2>/dev/null | sed -n "s/^package://p" | head -n 1); '
            f'a=$(sha256sum <{name}); b=$(sha256sum <"${{p:-/dev/null}}"); '
            f'[ "$a" = "$b" ] || pm install -r -g -t "$PWD/{name}"'
        )
        done = self.carrier.call(["sh", "-c", f"chmod -R a+rX .; {script}"], timeout)
        if done.code or "Failure" in done.log:
            said = done.log.strip().splitlines()[-1:] or [f"exit code {done.code}"]
            raise LabError(f"the app {file.name} cannot be installed: {said[0]}")

    # -- what it left

    def _check(self, code: int, log: str) -> None:
        """Raise the error of an app that failed: `LabError` if it cannot be started."""
        said = _NOT_STARTED.findall(log) if self.app.package else []
        if said or code in (126, 127):
            why = [*log.strip().splitlines(), *said][-1]
            raise LabError(f"the device's app cannot be started: {why}")
        check_signal(code, log)
        if self.app.package and (crash := _CRASHED.search(log)):
            raise failure(f"the app failed: {crash[1] or 'its test failed'}", log)
        if code == _ENDED:
            hint = "it crashed, or the system ended it, perhaps for memory"
            raise failure("the app ended before its results were complete", log, hint)
        if code:
            raise failure(f"the app ended with exit code {code}", log)

    def _conclude(self, job: Job, folder: Path, results: Path, log: str) -> None:
        report = AppReport()
        if results.is_file():
            try:
                report = read_app_report(results)
            except MissingDataError as error:
                raise failure(f"the app's results: {error.message}", log, error.hint) from error
        elif self.app.leaves("results"):
            raise failure("the app left no results", log)
        dump = None
        if (folder / ETDUMP).is_file():
            dump = self._last_runs(folder / ETDUMP, job)
        elif job.trace:
            raise failure(
                "the app left no ETDump",
                log,
                "is it built with the event tracer (see etscope docs)?",
            )
        times = _executions(dump, self.app.tick_ns)
        mean = report.metrics.get("avg_inference_latency(ms)")
        if not len(times):
            if mean is None:
                raise failure("the app left no time of an execution", log)
            self._mark("the app gives only the mean of its executions")
            times = np.array([mean * 1e6], np.int64)
        elif not job.trace:
            self._mark("the app recorded a trace while it was timed")
        load = report.metrics.get(
            "model_load_time(ms)", report.metrics.get("llm_model_load_time(ms)")
        )
        load_ns = _load(dump, self.app.tick_ns) if load is None else round(load * 1e6)
        warmup = job.calls[0].warmup if len(times) == job.executions else 0
        call = {"load_ns": 0, "outputs": []}
        call |= {"warmup_ns": times[:warmup].tolist(), "samples_ns": times[warmup:].tolist()}
        about = {"runner": APP, "executorch": None, "threads": job.threads, "load_ns": load_ns}
        (folder / RESULT).write_text(json.dumps({**about, "calls": [call]}), encoding="utf-8")

    def _last_runs(self, path: Path, job: Job) -> ETDump:
        """Keep the last runs of a dump, as many as the job has executions."""
        dump = read_etdump(path)
        executed = np.array(
            [dump.run_name_of(run) == _EXECUTE for run in range(dump.num_runs)], bool
        )
        found = int(executed.sum())
        if found < job.executions:
            raise RuntimeFailure(
                f"the app executed {found} times and not {job.executions}",
                hint="name {iterations} and {warmup} in its command, or give the job as many",
            )
        if found > job.executions:
            late = executed.cumsum() > found - job.executions
            dump = select_runs(dump, ~executed | late)
            path.write_bytes(write_etdump(dump))
        return dump

    def _mark(self, text: str) -> None:
        if text not in self.marks:
            self.marks.append(text)


def _spans(dump: ETDump, name: str) -> npt.NDArray[np.int64]:
    """The ticks of all events of a name, in order."""
    wanted = [index for index, text in enumerate(dump.strings) if text == name]
    events = np.isin(dump.name, wanted)
    return np.asarray((dump.end - dump.start)[events], np.int64)


def _executions(dump: ETDump | None, tick_ns: float) -> npt.NDArray[np.int64]:
    if dump is None:
        return np.empty(0, np.int64)
    return np.asarray(np.rint(_spans(dump, _METHOD) * tick_ns), np.int64)


def _load(dump: ETDump | None, tick_ns: float) -> int:
    return 0 if dump is None else round(float(_spans(dump, LOAD_METHOD).sum()) * tick_ns)
