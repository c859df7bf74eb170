"""What a POSIX shell on a device is asked to do: scripts of one line each, and how their answers
are read.

Nothing goes into a script unquoted. An answer is known by a mark that nobody can foresee: the exit
status of `adb shell` says nothing on many devices, and that of `ssh` may be its own.
"""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Sequence

from etscope.errors import UsageError

# What a pattern for files of /sys and /proc may hold; only * ? [ ] mean something to the shell.
_PATTERN = re.compile(r"[A-Za-z0-9_./:,@+=*?\[\]-]+")


def mark() -> str:
    """A word that no output holds by chance."""
    return f"etscope-{secrets.token_hex(12)}"


def reading(patterns: Sequence[str], sign: str) -> str:
    """A script that prints the files, each after a line of `sign` and its path."""
    strange = [pattern for pattern in patterns if not _PATTERN.fullmatch(pattern)]
    if strange:
        raise UsageError(f"not a pattern of paths: {strange[0]!r}")
    return (
        f"for f in {' '.join(patterns)}; do "
        f'if [ -f "$f" ] && [ -r "$f" ]; then echo "{sign} $f"; cat "$f" 2>/dev/null; echo; fi; '
        "done"
    )


def read_files(answer: str, sign: str) -> dict[str, str]:
    """What `reading` printed: text by path, empty ones left out."""
    found = {}
    for part in answer.replace("\r\n", "\n").split(f"{sign} ")[1:]:
        path, _, text = part.partition("\n")
        if text.strip():
            found[path] = text.removesuffix("\n")
    return found


def asking(script: str, sign: str) -> str:
    """A script that ends by saying that it ended, and its status."""
    return f'{script}; c=$?; echo; echo "{sign} $c"'


def running(command: Sequence[str], folder: str, sign: str) -> str:
    """A script that runs a command in a folder, and says at the end how that ended.

    The script's stdin is the thread that the command hangs by: at its end, which comes when whoever
    asked for the command dies or gives up, the command is killed with all that it started. So the
    command is in a session of its own, and does not get that stdin.
    """
    return "; ".join(
        (
            "trap '' HUP",
            f"cd {shlex.quote(folder)} 2>/dev/null || {{ echo; echo '{sign} gone'; exit 0; }}",
            "exec 3<&0",
            "if command -v setsid >/dev/null; then s=setsid; else s=; fi",
            f"$s {shlex.join(command)} </dev/null 3<&- 2>&1 & p=$!",
            # `read` is the shell's own: another process would keep the connection open.
            "{ while read -r x <&3; do :; done; kill -9 -$p || kill -9 $p; } >/dev/null 2>&1 & "
            "w=$!",
            "wait $p; c=$?",
            "{ kill -9 $w; wait $w; } 2>/dev/null",
            f'echo; echo "{sign} $c"',
        )
    )


def ending(answer: str, sign: str) -> tuple[str, str] | None:
    """What was written before the sign, and the word after it; None when the sign is not there."""
    before, found, after = answer.replace("\r\n", "\n").rpartition(f"\n{sign} ")
    return (before, after.split()[0]) if found and after.split() else None


# Each line "name=value"; empty values are left out. `getprop` is Android's.
FACTS = (
    'echo "arch=$(uname -m)"; echo "kernel=$(uname -sr)"; '
    "a=$(getprop ro.build.version.release 2>/dev/null); "
    'echo "os=$([ -n "$a" ] && echo android || uname -s | tr A-Z a-z)"; echo "android=$a"; '
    'echo "cores=$(nproc 2>/dev/null || grep -c ^processor /proc/cpuinfo)"; '
    "sed -n 's/^MemTotal: *\\([0-9]*\\) kB/memory_kib=\\1/p' /proc/meminfo 2>/dev/null; "
    'echo "model=$(getprop ro.product.model 2>/dev/null '
    "|| tr -d '\\0' </proc/device-tree/model 2>/dev/null)\"; "
    'echo "soc=$(getprop ro.soc.model 2>/dev/null)"; '
    "sed -n 's/^\\(model name\\|Hardware\\)[[:space:]]*: */cpu=/p' /proc/cpuinfo 2>/dev/null | "
    "head -n 1; true"
)


def read_facts(answer: str) -> dict[str, str]:
    """What `FACTS` printed, as attributes of a device."""
    pairs = [line.partition("=") for line in answer.splitlines()]
    found = {name: text.strip() for name, sign, text in pairs if sign and text.strip()}
    kib = found.pop("memory_kib", "")
    if kib.isdecimal():
        found["memory_bytes"] = str(int(kib) * 1024)
    return found


def code_of(status: int) -> int:
    """The exit code of a command from a shell's `$?`, which is 128 + n for signal n."""
    return 128 - status if 128 < status < 128 + 65 else status
