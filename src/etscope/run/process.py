"""A runner in a separate process: start it, wait for it, and explain its failure by its log."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from etscope.errors import MissingDependencyError, RuntimeFailure
from etscope.support.optional import installed_libraries

__all__ = ["LOG", "call_logged", "end_with_parent"]

LOG = "log.txt"
# Made in the folder of a process that SIGINT ended before its time, and that ended well.
STOPPED = "stopped"
_SECONDS_TO_STOP = 30  # a generation ends after its call, which may take seconds
_SHOWN_LINES = 20  # of a log, in an error


class DebugBufferFull(Exception):
    """The runtime had more to log than its debug buffer holds."""

    def __init__(self, log: str) -> None:
        super().__init__(log)
        self.log = log


class PoolTooSmall(RuntimeFailure):
    """A pool of a run has no room for an allocation. `pool` is "method" or "temporary"; `asked`
    bytes of it were wanted, and `left` of its `size` were free."""

    def __init__(self, found: re.Match[str], log: str) -> None:
        super().__init__(found[0], log=relevant(log), hint="etscope run --pools finds the sizes")
        self.pool = found["pool"]
        self.asked, self.left, self.size = (int(found[name]) for name in ("asked", "left", "size"))


_POOL_TOO_SMALL = re.compile(
    r"the (?P<pool>\w+) pool is too small: (?P<asked>\d+) bytes asked for \(aligned to \d+\), "
    r"(?P<left>\d+) of (?P<size>\d+) left"
)


def check_pools(log: str) -> None:
    """Raise `PoolTooSmall` if the log of a failed run says that a pool was."""
    if found := _POOL_TOO_SMALL.search(log):
        raise PoolTooSmall(found, log)


def run_process(
    command: Sequence[str | os.PathLike[str]],
    folder: Path,
    timeout: float | None,
    *,
    stoppable: bool = False,
) -> int:
    """Run a runner to its end and return its exit code. Its output goes to a file in `folder`.

    stoppable: SIGINT (Ctrl-C) is passed on, and the process ends by itself with what it has; a
    second one ends it at once.

    Raises `RuntimeFailure` when it was ended by a signal, or after `timeout` seconds, and
    `DebugBufferFull` when that was the reason.
    """
    with (folder / LOG).open("wb") as log:
        try:
            child = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**installed_libraries(), **os.environ},
            )
        except OSError as error:
            raise RuntimeFailure(
                f"cannot start {os.fspath(command[0])}: {error.strerror}"
            ) from error
        try:
            code = child.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise timed_out(timeout, read_log(folder)) from error
        except KeyboardInterrupt:
            if not stoppable:
                raise
            child.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_SECONDS_TO_STOP)
            if child.returncode != 0:  # None: it does not end
                raise
            code = 0
            (folder / STOPPED).touch()
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
    check_signal(code, read_log(folder))
    return code


def read_log(folder: Path) -> str:
    """Return the whole output of the runner; "" when there is none."""
    path = folder / LOG
    return path.read_text("utf-8", "replace") if path.exists() else ""


def end_of(output: IO[bytes], most: int) -> str:
    """Return the last `most` bytes that a process wrote to a file, as text. The file's offset,
    which the process may share, stays the same."""
    size = os.fstat(output.fileno()).st_size
    return os.pread(output.fileno(), most, max(0, size - most)).decode(errors="replace")


def signal_name(number: int) -> str:
    return next((s.name for s in signal.Signals if s.value == number), f"signal {number}")


def check_signal(code: int, log: str) -> None:
    """Raise `RuntimeFailure` or `DebugBufferFull` if a signal ended the process (`code` is its
    number, negative)."""
    if code >= 0:
        return
    if _DEBUG_BUFFER_FULL in log:
        raise DebugBufferFull(relevant(log))
    check_pools(log)
    name = signal_name(-code)
    hints = {
        "SIGKILL": "the system may have run out of memory",
        "SIGSEGV": "the runtime, a kernel or a backend is broken, or the program is",
    }
    error = failure(f"the runtime's process died of {name}", log, hints.get(name))
    error.killed = name in ("SIGKILL", "SIGTERM")
    raise error


def failure(what: str, log: str, hint: str | None = None) -> RuntimeFailure:
    """Make the error of a failed run: the explanation of the log if there is one, else `what` and
    `hint`."""
    what, hint = explained(log) or (what, hint)
    return RuntimeFailure(what, log=relevant(log), hint=hint)


def timed_out(timeout: float | None, log: str) -> RuntimeFailure:
    """Make the error of a run that was stopped after `timeout` seconds."""
    return RuntimeFailure(
        f"the run did not end within {timeout or 0:g} s and was stopped",
        log=relevant(log),
        hint="allow more time, or run fewer iterations",
    )


# -- processes that must not outlive their parent


def require_posix(what: str) -> None:
    """Raise `MissingDependencyError` on Windows: `what` needs POSIX signals, locks or shells."""
    if sys.platform == "win32":
        raise MissingDependencyError(
            f"{what} does not run on Windows",
            hint="use it on Linux, macOS or WSL; etscope here reads the files that it makes",
        )


def end_with_parent() -> None:
    """Ask Linux to end this process when its parent dies, also of SIGKILL."""
    if sys.platform == "linux":
        set_parent_death_signal = 1  # PR_SET_PDEATHSIG in <sys/prctl.h>
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)


def call_logged(
    command: Sequence[str],
    log: Path,
    timeout: float | None,
    *,
    cwd: Path | None = None,
    grace: float = 0.0,
) -> int:
    """Run a command with its output in a file, and return its exit code; negative for a signal.

    All its processes are ended with it, at the timeout, and when this process ends. grace: seconds
    that it has at the timeout to end by itself. Raises `TimeoutError` with the log so far.
    """
    with log.open("wb") as said:
        child = subprocess.Popen(
            list(command),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=end_with_parent,
        )
        try:
            return child.wait(timeout)
        except subprocess.TimeoutExpired as error:
            if grace:
                child.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(grace)
            raise TimeoutError(log.read_text("utf-8", "replace")) from error
        finally:
            _end_group(child)


def _end_group(child: subprocess.Popen[bytes]) -> None:
    """End the remaining processes of the group that a process started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


# -- the runtime's log

_DEBUG_BUFFER_FULL = "Ran out of space to store intermediate outputs"

# Lines of a healthy run on some machines, and of libraries that the Python process loads; and the
# kinds of a failed kernel's arguments, one a line, which push what it says out of sight.
_NOISE = re.compile(
    r"\[cpuinfo_utils\.cpp:\d+\]|Failed to load .*torchao|KernelPreference|"
    r"\[method\.cpp:\d+\] arg \d+ with type id \d+|"
    r"dtype: \d+ \| dim order|^\s*$|torch/utils/_pytree\.py|terminate called|^Aborted"
)

MISSING_KERNEL = r"Missing operator: \[\d+\] (\S+)"
FAILED = re.compile(
    r"(?:KernelCall|CALL_DELEGATE execute) failed at instruction (?:\d+:)?(?P<instruction>\d+)"
    r"(?: in operator (?P<operator>\S+))?: (?P<code>0x\w+)"
)
# Of runtime/core/error.h.
_CODES = {
    0x1: "Internal",
    0x2: "InvalidState",
    0x10: "NotSupported",
    0x11: "NotImplemented",
    0x12: "InvalidArgument",
    0x13: "InvalidType",
    0x20: "NotFound",
    0x21: "MemoryAllocationFailed",
    0x22: "AccessFailed",
    0x23: "InvalidProgram",
    0x25: "OutOfResources",
    0x30: "DelegateInvalidCompatibility",
    0x31: "DelegateMemoryAllocationFailed",
    0x32: "DelegateInvalidHandle",
}
_UNSUPPORTED = (
    "the log says what its kernel does not support: lower the model so that the operator "
    "is decomposed or delegated, or give it other inputs"
)
# What kernels say of an index that is outside of a tensor: `embedding`, `index_select`, `gather`,
# `index` and others.
_OUTSIDE = re.compile(r"out of (range|bounds)|indices_ptr\[", re.IGNORECASE)
# While a method is loaded; the reason is on the line before.
REFUSED_TENSOR = re.compile(r"Failed parsing tensor at index (?P<value>\d+)")

# `ET_CHECK`, which aborts; and a delegate whose data the backend does not take.
_ABORTED = re.compile(r"In function (?P<function>\w+)\(\), assert failed (?P<reason>.+)")
_REFUSED_CALL = re.compile(r"Init failed for backend (?P<backend>\w+): (?P<code>0x\w+)")

_BEYOND_PLAN = re.compile(
    r"offset_bytes \((\d+)\) \+ size_bytes \((\d+)\) >= allocator size \((\d+)\) "
    r"for memory_id (\d+)"
)

# Backend -> its requirements.
_PROVIDERS = {
    "XnnpackBackend": "the Python package of ExecuTorch, or a runtime built with "
    "EXECUTORCH_BUILD_XNNPACK",
    "CoreMLBackend": "the Python package of ExecuTorch on macOS, or a runtime for Apple's systems "
    "built with EXECUTORCH_BUILD_COREML",
    "MPSBackend": "a runtime for Apple's systems built with EXECUTORCH_BUILD_MPS",
    "MetalBackend": "a runtime for macOS built with EXECUTORCH_BUILD_METAL",
    "MLXBackend": "a runtime for Apple silicon built with EXECUTORCH_BUILD_MLX",
    "VulkanBackend": "a runtime built with EXECUTORCH_BUILD_VULKAN, and a GPU with a Vulkan driver",
    "QnnBackend": "a Qualcomm device, or Qualcomm's AI Engine Direct SDK (QNN_SDK_ROOT), with a "
    "runtime built with EXECUTORCH_BUILD_QNN",
    "OpenvinoBackend": "Intel's OpenVINO: pip install openvino",
    "EthosUBackend": "a board or simulator with an Arm Ethos-U, and a runtime for it",
    "VgfBackend": "a runtime built with EXECUTORCH_BUILD_VGF, and Arm's ML SDK for Vulkan",
    "NeuropilotBackend": "a MediaTek device, and a runtime built with EXECUTORCH_BUILD_NEURON",
    "NeutronBackend": "an NXP board with an eIQ Neutron NPU, and a runtime for it",
    "EnnBackend": "a Samsung Exynos device, and a runtime built with EXECUTORCH_BUILD_ENN",
    "CudaBackend": "an NVIDIA GPU, and a runtime built with EXECUTORCH_BUILD_CUDA",
    "TensorRTBackend": "an NVIDIA GPU with TensorRT, and pip install "
    "torch-tensorrt-executorch-runtime, whose Python runtime etscope does not start",
    "CoreAIBackend": "a runtime for Apple's systems, which ExecuTorch 1.5 does not have yet",
    "NativeBackend": "ExecuTorch's native runtime, which ExecuTorch 1.5 does not have yet",
    "AotiBackend": "a runtime built with the AOTInductor backend",
}


def relevant(log: str) -> str:
    """Return the last lines of a log that may explain a failure."""
    kept = [line for line in log.splitlines() if not _NOISE.search(line)]
    return "\n".join(kept[-_SHOWN_LINES:])


def explained(log: str) -> tuple[str, str] | None:
    """Return (what is wrong, what to do) if the log shows a known problem, else None."""
    if missing := _named(r"Backend (\w+) is not registered", log):
        providers = [f"{one}: {_PROVIDERS.get(one, 'a runtime that links it')}" for one in missing]
        return (
            f"the program needs the backend {', '.join(missing)}, which this runtime does not have",
            f"what provides it: {'; '.join(providers)}; or lower the model for another backend",
        )
    if unavailable := _named(r"Backend (\w+) is not available", log):
        needs = [_PROVIDERS.get(one, "its libraries or device") for one in unavailable]
        return (
            f"the backend {', '.join(unavailable)} is in this runtime, and cannot work on this "
            "machine",
            "; ".join(f"it needs {need}" for need in needs),
        )
    if operators := _named(MISSING_KERNEL, log):
        from etscope.analysis.program.program import registered_by

        libraries = dict.fromkeys(filter(None, map(registered_by, operators)))
        of = f", {' and '.join(libraries)}" if libraries else ""
        return (
            f"this runtime has no kernel for {', '.join(operators)}",
            f"load the library that registers it{of} (libraries=, -X libraries), or lower the "
            "model so that the operator is decomposed or delegated",
        )
    if failed := FAILED.search(log):
        hint = _UNSUPPORTED
        if _OUTSIDE.search(log):
            hint = "an index is outside of the tensor that it picks from: give other inputs"
        elif failed["operator"] is None:
            hint = (
                "the log has the backend's reason: give inputs of the shape and layout of the "
                "export, or lower the model for another backend"
            )
        return (
            f"{failed['operator'] or 'a delegate call'} failed at instruction "
            f"{failed['instruction']} (error {_named_code(failed['code'])})",
            hint,
        )
    if beyond := _BEYOND_PLAN.search(log):
        first, size, most, memory = map(int, beyond.groups())
        return (
            f"a tensor needs bytes {first:,} to {first + size:,} of planned memory {memory}, which "
            f"has {most:,}",
            "the program's memory plan contradicts itself: the file was changed, export it again",
        )
    if _named(r"(std::bad_alloc|MemoryError|Failed to allocate)", log):
        return (
            "the runtime could not get the memory that it asked for",
            "see etscope info for the memory plan",
        )
    return _refused(log)


def _refused(log: str) -> tuple[str, str] | None:
    """Explain a kernel that aborts, or a backend that does not load its part of the program."""
    stored = (
        "store quantized weights as integers (`convert_pt2e(…, fold_quantize=True)`), if the model "
        "quantizes them when it runs"
    )
    if aborted := _ABORTED.search(log):
        function, reason = aborted["function"], aborted["reason"]
        return (
            f"{function} ended the runtime's process: {reason}",
            stored if "quantize" in function else _UNSUPPORTED,
        )
    if refused := _REFUSED_CALL.search(log):
        return (
            f"{refused['backend']} does not load its part of the program (error "
            f"{_named_code(refused['code'])})",
            f"the log has the backend's reason: {stored}, or lower the model for another backend",
        )
    return None


def _named_code(code: str) -> str:
    name = _CODES.get(int(code, 16))
    return code if name is None else f"{code}, {name}"


def _named(pattern: str, log: str) -> list[str]:
    return list(dict.fromkeys(match[1] for match in re.finditer(pattern, log)))
