"""Files, targets and cores: what is debugged, and where it runs."""

from __future__ import annotations

import os
import platform
import sys
import zipfile
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etscope.errors import EtscopeError, UsageError
from etscope.etdb.commands import COMMANDS, command, split_words, whole
from etscope.etdb.debugger import Debugger, with_files
from etscope.etdb.output import Output, operators, text_of
from etscope.units import count as counted
from etscope.units import format_bytes

if TYPE_CHECKING:
    from etscope.etdb.protocol.launch import Launcher
    from etscope.etdb.targets.reference import Calls
    from etscope.formats.torch_files.tensor_files import TensorFile

GROUP = "files"
_KINDS = "live, recorded, runtime, remote HOST:PORT, ssh:HOST"
_EVERYWHERE = ("inputs", "seed", "method", "threads", "traced")
_OPTIONS = {
    "runtime": (*_EVERYWHERE, "data", "library", "server"),
    "remote": _EVERYWHERE,
    "ssh": (*_EVERYWHERE, "server", "push", "user", "port", "identity", "config", "known-hosts",
            "folder"),
}  # fmt: skip
_FLAGS, _REPEATED = ("traced",), ("inputs", "data", "library")


@command("file [FILE …]", group=GROUP, words=("file",))
def file(debugger: Debugger, rest: str) -> Output:
    """Load an ETRecord, a .pte or a .bpte in place of the loaded one; without a name, list the
    files.

    If the dump does not belong to the new record, nothing is changed.
    """
    return _load(debugger, rest)


@command("core [RUN.etdp [BUFFER.bin]]", group=GROUP, words=("file",))
def core(debugger: Debugger, rest: str) -> Output:
    """Load an ETDump, and the debug buffer of its run; or list the files.

    `core DIR` loads both from a folder of `etscope run --save`.
    """
    return _load(debugger, rest)


def _load(debugger: Debugger, rest: str) -> Output:
    """Load files, if any are given, and list all."""
    if rest:
        paths = [os.path.expanduser(word) for word in split_words(rest)]  # noqa: PTH111 (never fails)
        debugger.load(with_files(debugger.files, *paths))
    files = debugger.files
    named = (
        ("ETRecord", files.record),
        ("program", files.program),
        ("ETDump", files.dump),
        ("debug buffer", files.debug_buffer),
    )
    lines = [f"{what}: {path}" for what, path in named if path is not None]
    return Output().say(*lines or ["no files: file MODEL.etrecord, core RUN.etdp"])


@command(
    "target live|recorded|runtime|remote|ssh:HOST [OPTION …]",
    group="files",
    words=("live", "recorded", "runtime", "remote", "ssh:", "--inputs", "--seed", "--method",
           "--data", "--library", "--server", "--threads", "--traced", "--push", "file"),
)  # fmt: skip
def target(debugger: Debugger, rest: str) -> Output:
    """Choose the run to debug.

    recorded: the runs of the dump.
    live [INPUTS …]: the reference in PyTorch. `set` replaces a value, and everything after it is
    computed from the new one.
    runtime: the program on the ExecuTorch runtime, in a separate process on this machine.
    remote HOST:PORT: the same, on a machine where `etdb-server --listen` runs. The token is
    $ETDB_TOKEN.
    ssh:HOST: the same, on a machine where ssh starts etdb-server. --server PATH is its path there;
    --push PATH copies its binary or install folder from here. --user, --port, --identity, --config,
    --known-hosts and --folder configure the connection.

    A run on the runtime stops after each kernel and each delegate's call. The call is one
    instruction and cannot be stepped into. `run` and `start` begin the run anew.
    Options: --inputs FILE (.npz, .npy, .safetensors, .pt; repeatable: a file for each call of a
    model that keeps state; by default from the recorded runs, the record or the bundled
    program, else generated), --seed N (of generated inputs; 0 by default),
    --method NAME, --threads N, --data FILE.ptd and --library FILE.so (both repeatable),
    --server PATH, and --traced, which keeps a dump from the start, so that the run need not be
    repeated to write the core of a crash.
    """
    request = _Request.parse(rest)
    if request.kind == "":
        one = debugger.target
        text = "no target" if one is None else f"{one.kind}, {one.method or 'method'}"
        return Output().say(text)
    if request.kind == "recorded":
        recorded = debugger.recorded_runs()
        debugger.begin(recorded)
        return Output().say(
            f"{counted(len(recorded.runs), 'recorded run')}; run or start begins a run"
        )
    if request.kind == "live":
        paths = [*request.words, *request.options.get("inputs", ())]
        if set(request.options) - {"inputs"}:
            raise UsageError("a live run takes files of inputs, and nothing else")
        live = debugger.go_live(read_inputs(*paths) if paths else None)
        return Output().say(
            f"the reference of {live.method} in PyTorch, {operators(len(live.stops))}; run "
            "or start begins a run"
        )
    return _begin_runtime(debugger, request)


@command("kill", group="running")
def kill(debugger: Debugger, rest: str) -> Output:
    """End the runner of a run on the runtime. `run` and `start` begin it anew."""
    found = debugger.on_runtime
    if found is None:
        raise UsageError("no run on the runtime is active", hint="target runtime")
    found.close()
    debugger.begin(found)
    return Output().say("the run is ended; run or start begins it anew")


@dataclass
class _Request:
    """Arguments of `target`: kind, further words, and options by name."""

    kind: str
    words: list[str] = field(default_factory=list)
    options: dict[str, list[str]] = field(default_factory=dict)

    def one(self, name: str) -> str | None:
        """The value of an option; None if it was not given."""
        found = self.options.get(name)
        return found[-1] if found else None

    def paths(self, name: str) -> tuple[Path, ...]:
        return tuple(Path(path).expanduser() for path in self.options.get(name, ()))

    def launcher(self) -> Launcher:
        from etscope.etdb.protocol.launch import Local, Remote, SshServer, remote_address

        unexpected = self.words[1 if self.kind == "remote" else 0 :]
        if unexpected:
            raise UsageError(
                f"what is {unexpected[0]!r}?", hint="files of inputs are given with --inputs FILE"
            )
        if self.kind == "runtime":
            (server,) = self.paths("server")[-1:] or (None,)
            return Local(
                server=server,
                program=None,
                data=self.paths("data"),
                libraries=self.paths("library"),
            )
        if self.kind == "remote":
            if not self.words:
                raise UsageError("target remote where?", hint="target remote HOST:PORT")
            return Remote(*remote_address(self.words[0]))
        host = self.kind.partition(":")[2]
        if not host:
            raise UsageError("target ssh needs a host", hint="target ssh:HOST")
        options: dict[str, Any] = {
            name.replace("-", "_"): self.one(name)
            for name in ("user", "port", "identity", "config", "known-hosts", "folder")
            if self.one(name) is not None
        }
        if "port" in options:
            options["port"] = whole(options["port"], what="a port")
        given: dict[str, Any] = {"options": options}
        if (server_there := self.one("server")) is not None:
            given["command"] = server_there
        if pushed := self.paths("push"):
            given["push"] = pushed[-1]
        return SshServer(host, **given)

    @classmethod
    def parse(cls, rest: str) -> _Request:
        """Parse the arguments of `target`. Raises `UsageError` with the known kinds or options."""
        words = split_words(rest)
        if not words:
            return cls("")
        kind = words.pop(0)
        plain = "ssh" if kind.startswith("ssh:") else kind
        if plain not in ("live", "recorded", *_OPTIONS) or kind == "ssh":
            raise UsageError(f"unknown target {kind!r}", hint=f"targets are: {_KINDS}")
        known = _OPTIONS.get(plain, ("inputs",) if plain == "live" else ())
        request = cls(kind)
        while words:
            word = words.pop(0)
            if not word.startswith("--"):
                request.words.append(word)
                continue
            name, equals, value = word[2:].partition("=")
            if name not in known:
                options = ", ".join(f"--{one}" for one in known) or "none"
                raise UsageError(
                    f"target {plain} has no option --{name}", hint=f"there are: {options}"
                )
            if not equals and name not in _FLAGS:
                if not words:
                    raise UsageError(f"--{name} of what?")
                value = words.pop(0)
            if name in request.options and name not in _REPEATED:
                raise UsageError(f"--{name} is given twice")
            request.options.setdefault(name, []).append(value)
        return request


def _begin_runtime(debugger: Debugger, request: _Request) -> Output:
    from etscope.etdb.targets.runtime import RuntimeTarget
    from etscope.etdb.targets.runtime_method import prepare_method

    launcher = request.launcher()
    paths, seed = request.options.get("inputs", []), request.one("seed")
    if paths and seed is not None:
        raise UsageError("--inputs and --seed exclude each other")
    inputs = read_inputs(*paths) if paths else debugger.inputs
    threads = whole(request.one("threads") or "0", what="a number of threads")
    prepared = prepare_method(
        debugger.capture,
        debugger.files.bundle,
        request.one("method") or debugger.method,
        inputs,
        seed=None if seed is None else whole(seed, what="a seed, a whole number,"),
        forced=debugger.forced,
    )
    found = RuntimeTarget(prepared, launcher, threads=threads, traced="traced" in request.options)
    debugger.begin(found)
    runner = found.runner_info
    output = Output().say(
        f"{found.method} on ExecuTorch {runner.executorch} ({runner.architecture}, "
        f"{found.place}), {operators(len(found.stops))}; run or start begins a run"
    )
    if len(found.runs) > 1:
        output.say(
            f"{counted(len(found.runs), 'call')}, each in the state that the one before left"
        )
    return output if found.seed is None else output.say(f"inputs are generated: seed {found.seed}")


def read_inputs(*paths: str) -> TensorFile | Calls:
    """Read the inputs of a run, or of several calls: from a file each, or from one that has them by
    call, "0/input_0", as `etscope run --save` writes it."""
    from etscope.etdb.targets.reference import Calls
    from etscope.formats.torch_files.tensor_files import read_tensor_file

    files = [read_tensor_file(Path(path).expanduser()) for path in paths]
    sets = [one for file in files for one in _sets_of_file(file)]
    return sets[0] if len(sets) == 1 else Calls(sets)


def _sets_of_file(file: TensorFile) -> list[TensorFile]:
    found: dict[int, list[tuple[str, Any]]] = {}
    for name, value in zip(file.names, file.values, strict=True):
        number, slash, rest = (name or "").partition("/")
        if not (slash and number.isdecimal()):
            return [file]
        found.setdefault(int(number), []).append((rest, value))
    return [
        replace(
            file,
            names=tuple(name for name, _ in found[number]),
            values=tuple(value for _, value in found[number]),
            content=None,
        )
        for number in sorted(found)
    ]


@command("bug-report [FILE.zip] [--weights]", group="session", words=("--weights", "file"))
def bug_report(debugger: Debugger, rest: str) -> Output:
    """Write a zip file for a report: versions, the lines of this session, where the run stands, the
    program's instructions, and the run's times.

    Weights, inputs and tensors stay out; --weights adds all open files. An existing file is not
    replaced.
    """
    words = split_words(rest)
    path = Path(next((word for word in words if word != "--weights"), "etdb-bug.zip")).expanduser()
    files = debugger.files
    given = [files.dump]
    if "--weights" in words:
        given += [files.record, files.program, files.debug_buffer]
    texts = {"versions": "\n".join(map(_version, ("etscope", "executorch", "torch", "numpy")))}
    texts["versions"] += f"\nPython {sys.version}\n{platform.platform()}"
    texts["session"] = "\n".join(debugger.executed)
    for line in ("info target", "info runs", "info breakpoints", "bt full", "disassemble all"):
        word, _, arguments = line.partition(" ")
        try:
            texts[line] = text_of(COMMANDS[word].function(debugger, arguments))
        except EtscopeError as error:
            texts[line] = str(error)
    try:
        with zipfile.ZipFile(path, "x", zipfile.ZIP_DEFLATED) as file:
            for name, text in texts.items():
                # Lines of a session may hold surrogates, which are not UTF-8.
                content = f"{text}\n".encode("utf-8", "backslashreplace")
                file.writestr(f"{name.replace(' ', '-')}.txt", content)
            for one in filter(None, given):
                file.write(one, one.name)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
    size = format_bytes(path.stat().st_size)
    return Output().say(f"{path} ({size}): {', '.join((*texts, *(f.name for f in given if f)))}")


def _version(package: str) -> str:
    try:
        return f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        return f"{package} is not installed"


@command("generate-core-file PATH", group="files", aliases=("gcore",), words=("file",))
def generate_core_file(debugger: Debugger, rest: str) -> Output:
    """Write the run up to here as an ETDump, and its tensors as a debug buffer next to it.

    `gcore half.etdp` writes half.etdp and half.bin, which `core half.etdp half.bin` and the
    Inspector open; half.run.json and half.inputs.npz have the inputs of the run. Unless the target
    is --traced, the run is repeated for it, with the values that were set. The current stop stays
    the same. Existing files are not replaced.
    """
    from etscope.etdb.cores import CoreFiles
    from etscope.etdb.targets.runtime import RuntimeTarget

    target = debugger.some_target()
    if not isinstance(target, RuntimeTarget):
        raise UsageError(
            "only a run on the runtime leaves a core", hint="target runtime, then run or start"
        )
    if not rest:
        raise UsageError("write it where?", hint="generate-core-file run.etdp")
    if debugger.stop is None and not debugger.ended:
        raise UsageError("the run has not begun", hint="run, or start")
    path = Path(os.path.expanduser(rest))  # noqa: PTH111 (never fails)
    files = CoreFiles(path)
    files.check_free()
    core = target.core()
    files.write(debugger, target, core)
    return Output().say(
        f"ETDump: {path} ({format_bytes(len(core.etdump))})",
        f"debug buffer: {files.buffer} ({format_bytes(len(core.debug_buffer))})",
        f"to debug this dump: core {path} {files.buffer}",
    )
