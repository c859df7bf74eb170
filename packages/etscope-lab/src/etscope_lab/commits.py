"""Commits of a git repository, and the programs that a command makes of them."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from etscope.errors import UsageError
from etscope.formats.bytes.files import atomic_write, make_folder
from etscope.formats.etrecord.reader import read_etrecord
from etscope_lab.comparison.bisect import Candidates, Skipped

SKIP = 125  # exit code of a build whose commit is to be skipped, as of git bisect run
_STOPPED = 126  # this and larger: the command cannot be started, or was killed
_STDERR = 2  # file descriptor: standard output is for the result
_PROGRAMS = "programs"


def git(*words: str) -> str:
    """Return the output of git in the current folder. Raises `UsageError` when git fails."""
    try:
        done = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
    except OSError as error:
        raise UsageError("git cannot be started", hint="install git") from error
    if done.returncode:
        said = done.stderr.strip().removeprefix("fatal: ") or f"exit code {done.returncode}"
        raise UsageError(f"git {words[0]}: {said}")
    return done.stdout.strip()


def commit_of(name: str) -> str:
    """Return the full hash of a commit. Raises `UsageError` if there is none."""
    return git("rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}")


def candidates_of(good: str, bad: str) -> Candidates:
    """Return the commits that descend from `good` and lead to `bad`, oldest first. Raises
    `UsageError` if there are none."""
    good, bad = commit_of(good), commit_of(bad)
    listed = git(
        "rev-list", "--topo-order", "--reverse", "--ancestry-path", "--parents", f"{good}..{bad}"
    )
    parents: Mapping[str, Sequence[str]] = {
        words[0]: words[1:] for words in map(str.split, listed.splitlines())
    }
    if bad not in parents:
        raise UsageError(
            f"{bad[:12]} does not descend from {good[:12]}",
            hint="name an earlier commit, whose program is fast, then a later one: EARLY..LATE",
        )
    return Candidates(good, parents)


@dataclass(slots=True)
class Programs:
    """Programs of commits, built in a separate worktree and kept in a folder.

    use: "bisect" or "sweep"; each has a worktree, as both may run, and takes programs that the
    other built by the same command. model: the file that the command writes, relative to the
    current folder; the command is run in the same folder of the worktree. folder: of the programs,
    in git's own, so that no commit sees it.
    """

    use: str
    model: str
    command: Sequence[str]
    folder: Path = field(init=False)
    _prefix: str = field(init=False)
    _hashes: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._prefix = git("rev-parse", "--show-prefix")
        made = repr((self.model, list(self.command), self._prefix))
        where = git("rev-parse", "--path-format=absolute", "--git-path", "etscope")
        self.folder = Path(where) / hashlib.sha256(made.encode()).hexdigest()[:12]

    def path(self, commit: str) -> Path:
        """Return the program of a commit, after building it if need be.

        Raises `Skipped` if the command fails or writes no program, `UsageError` if it cannot be
        started or was killed.
        """
        kept = self.folder / _PROGRAMS / f"{commit}{Path(self.model).suffix}"
        if not kept.is_file():
            built = self._build(commit)
            make_folder(kept.parent)
            with built.open("rb") as source, atomic_write(kept) as target:
                shutil.copyfileobj(source, target)
        return kept

    def sha256(self, commit: str) -> str:
        """Return the hash of a commit's program; see `path`. Records of equal programs differ, so
        it is that of the program in a record."""
        if commit not in self._hashes:
            path = self.path(commit)
            is_record = path.suffix == ".etrecord"
            program = read_etrecord(path).program_view() if is_record else None
            self._hashes[commit] = hashlib.sha256(program or path.read_bytes()).hexdigest()
        return self._hashes[commit]

    @property
    def _tree(self) -> Path:
        return self.folder / self.use

    def close(self) -> None:
        """Remove the worktree; the programs stay."""
        if self._tree.exists():
            git("worktree", "remove", "--force", str(self._tree))

    def _build(self, commit: str) -> Path:
        tree = self._tree
        if (tree / ".git").exists():
            git("-C", str(tree), "checkout", "--quiet", "--force", "--detach", commit)
        else:
            shutil.rmtree(tree, ignore_errors=True)  # left by a kill
            git("worktree", "prune")
            git("worktree", "add", "--quiet", "--detach", str(tree), commit)
        inside = tree / self._prefix
        model = inside / self.model
        model.unlink(missing_ok=True)  # of the commit before
        if not inside.is_dir():
            raise Skipped(commit, "it does not have this folder")
        try:
            code = subprocess.run(
                self.command, cwd=inside, stdin=subprocess.DEVNULL, stdout=_STDERR, check=False
            ).returncode
        except OSError as error:
            raise UsageError(f"{self.command[0]} cannot be started: {error.strerror}") from error
        if code < 0 or code >= _STOPPED:
            raise UsageError(f"the command ended with exit code {code} at commit {commit[:12]}")
        if code:
            why = "the command skips it" if code == SKIP else f"the command's exit code is {code}"
            raise Skipped(commit, why)
        if not model.is_file():
            raise Skipped(commit, f"the command wrote no {self.model}")
        return model
