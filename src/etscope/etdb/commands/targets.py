"""Which run is walked: the recorded one, the reference, or the program itself on the runtime."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etscope.errors import UsageError
from etscope.etdb._answer import Answer
from etscope.etdb._debugger import Debugger
from etscope.etdb.commands.common import whole
from etscope.etdb.commands.registry import command
from etscope.etdb.ui.describe import counted, operators

if TYPE_CHECKING:
    from etscope.etdb.protocol.launch import Launcher
    from etscope.formats.torch_files.tensor_files import TensorFile

_KINDS = "live, recorded, runtime, remote HOST:PORT, ssh:HOST"
_EVERYWHERE = ("inputs", "seed", "method", "threads", "traced")
_OPTIONS = {
    "runtime": (*_EVERYWHERE, "data", "library", "server"),
    "remote": _EVERYWHERE,
    "ssh": (*_EVERYWHERE, "server", "push", "user", "port", "identity", "config", "known-hosts",
            "folder"),
}  # fmt: skip
_FLAGS, _REPEATED = ("traced",), ("data", "library")


@dataclass
class _Request:
    """What follows `target`: its kind, what else stands there, and the options by name."""

    kind: str
    words: list[str] = field(default_factory=list)
    options: dict[str, list[str]] = field(default_factory=dict)

    def one(self, name: str) -> str | None:
        """The value of an option that was given."""
        found = self.options.get(name)
        return found[-1] if found else None

    def paths(self, name: str) -> tuple[Path, ...]:
        return tuple(Path(path).expanduser() for path in self.options.get(name, ()))


@command(
    "target live|recorded|runtime|remote|ssh:HOST [OPTION …]",
    group="files",
    words=("live", "recorded", "runtime", "remote", "ssh:", "--inputs", "--seed", "--method",
           "--data", "--library", "--server", "--threads", "--traced", "--push", "file"),
)  # fmt: skip
def target(debugger: Debugger, rest: str) -> Answer:
    """Choose what is walked.

    recorded: the runs of the dump.
    live [INPUTS]: the reference in PyTorch. It stops anywhere, `set` exchanges a value, and what
    follows is computed from it.
    runtime: the program itself on the ExecuTorch runtime, in a process of its own here.
    remote HOST:PORT: the same where `etdb-server --listen` runs; the token is that of $ETDB_TOKEN.
    ssh:HOST: the same where ssh starts etdb-server. --server PATH is its path there, --push PATH
    its binary or install folder here, which is brought there; --user, --port, --identity, --config,
    --known-hosts and --folder are of the connection.

    A run on the runtime stops where a kernel or a delegate has run; a delegate's call is one
    instruction, and cannot be stepped into. `run` and `start` begin it, and begin it anew.
    Options: --inputs FILE (.npz, .npy, .safetensors, .pt; else the record's, those of the bundled
    program, or generated ones), --seed N (generated inputs, of seed 0 by default), --method NAME,
    --threads N, --data FILE.ptd and --library FILE.so (both repeatable), --server PATH, and
    --traced, which keeps a dump from the start, so that a crash leaves its core without that the
    run is repeated.
    """
    asked = _read(rest)
    if asked.kind == "":
        one = debugger.target
        return Answer().say("no target" if one is None else f"{one.kind}, {one.method or 'method'}")
    if asked.kind == "recorded":
        recorded = debugger.recorded_runs()
        debugger.begin(recorded)
        return Answer().say(f"{counted(len(recorded.runs), 'recorded run')}; run or start begins")
    if asked.kind == "live":
        return _live(debugger, asked)
    return _runtime(debugger, asked)


@command("kill", group="running")
def kill(debugger: Debugger, rest: str) -> Answer:
    """End the runner of a run on the runtime. `run` and `start` begin it anew."""
    found = debugger.on_runtime
    if found is None:
        raise UsageError("nothing runs that could be ended", hint="target runtime")
    found.close()
    debugger.begin(found)
    return Answer().say("the run is ended; run or start begins it anew")


def _live(debugger: Debugger, asked: _Request) -> Answer:
    paths = [*asked.words, *asked.options.get("inputs", ())]
    if len(paths) > 1 or set(asked.options) - {"inputs"}:
        raise UsageError("a live run takes a file of inputs, and nothing else")
    live = debugger.go_live(_file(paths[0]) if paths else None)
    return Answer().say(
        f"the reference of {live.method} in PyTorch, {operators(len(live.stops))}; "
        "run or start begins"
    )


def _runtime(debugger: Debugger, asked: _Request) -> Answer:
    from etscope.etdb.targets.runtime import RuntimeTarget

    launcher = _launcher(asked)
    path, seed = asked.one("inputs"), asked.one("seed")
    if path is not None and seed is not None:
        raise UsageError("inputs are of a file, or made of a seed")
    inputs = debugger.inputs if path is None else _file(path)
    threads = whole(asked.one("threads") or "0", what="a number of threads")
    found = RuntimeTarget(
        debugger.files,
        launcher,
        method=asked.one("method") or debugger.method,
        inputs=inputs,
        seed=None if seed is None else whole(seed, what="a seed, a whole number,"),
        threads=threads,
        traced="traced" in asked.options,
    )
    debugger.begin(found)
    answer = Answer().say(
        f"{found.method} on ExecuTorch {found.facts.executorch} ({found.facts.architecture}, "
        f"{found.place}), {operators(len(found.stops))}; run or start begins"
    )
    return answer if found.seed is None else answer.say(f"inputs are generated: seed {found.seed}")


def _launcher(asked: _Request) -> Launcher:
    from etscope.etdb.protocol.launch import Local, Remote, SshServer, remote_address

    if asked.kind == "runtime":
        _nothing_more(asked.words)
        (server,) = asked.paths("server")[-1:] or (None,)
        if server is None:
            _announce_build()
        return Local(
            server=server, program=None, data=asked.paths("data"), libraries=asked.paths("library")
        )
    if asked.kind == "remote":
        if not asked.words:
            raise UsageError("target remote where?", hint="target remote HOST:PORT")
        _nothing_more(asked.words[1:])
        return Remote(*remote_address(asked.words[0]))
    _nothing_more(asked.words)
    host = asked.kind.partition(":")[2]
    if not host:
        raise UsageError("target ssh of which host?", hint="target ssh:HOST")
    options: dict[str, Any] = {
        name.replace("-", "_"): asked.one(name)
        for name in ("user", "port", "identity", "config", "known-hosts", "folder")
        if asked.one(name) is not None
    }
    if "port" in options:
        options["port"] = whole(options["port"], what="a port")
    given: dict[str, Any] = {"options": options}
    if (server_there := asked.one("server")) is not None:
        given["command"] = server_there
    if pushed := asked.paths("push"):
        given["push"] = pushed[-1]
    return SshServer(host, **given)


def _announce_build() -> None:
    from etscope.run.native import server_is_built

    if not server_is_built():
        print("building etdb-server, once: this takes a minute or two", file=sys.stderr)


def _read(rest: str) -> _Request:
    """The parts of a line. Raises `UsageError` with the kinds or options that there are."""
    try:
        words = shlex.split(rest)
    except ValueError as error:
        raise UsageError(f"cannot read {rest!r}: {error}") from error
    if not words:
        return _Request("")
    kind = words.pop(0)
    plain = "ssh" if kind.startswith("ssh:") else kind
    if plain not in ("live", "recorded", *_OPTIONS) or kind == "ssh":
        raise UsageError(f"there is no target {kind!r}", hint=f"targets are: {_KINDS}")
    known = _OPTIONS.get(plain, ("inputs",) if plain == "live" else ())
    found = _Request(kind)
    following = iter(words)
    for word in following:
        if not word.startswith("--"):
            found.words.append(word)
            continue
        name, equals, value = word[2:].partition("=")
        if name not in known:
            options = ", ".join(f"--{one}" for one in known) or "none"
            raise UsageError(f"target {plain} has no option --{name}", hint=f"there are: {options}")
        found.options.setdefault(name, []).append(
            value if equals else _next(following.__next__, name)
        )
        if len(found.options[name]) > 1 and name not in _REPEATED:
            raise UsageError(f"--{name} is given twice")
    return found


def _next(following: Callable[[], str], name: str) -> str:
    if name in _FLAGS:
        return ""
    try:
        return following()
    except StopIteration:
        raise UsageError(f"--{name} of what?") from None


def _nothing_more(words: list[str]) -> None:
    if words:
        raise UsageError(
            f"what is {words[0]!r}?", hint="files of inputs are given with --inputs FILE"
        )


def _file(path: str) -> TensorFile:
    from etscope.formats.torch_files.tensor_files import read_tensor_file

    return read_tensor_file(Path(path).expanduser())
