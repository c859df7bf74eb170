"""`etscope lab bisect` over the commits of a repository."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from etscope.cli import main
from etscope_lab.cli import bisect
from etscope_lab.jobs.records import Alarm, AlarmState, Job, Outcome, State
from etscope_lab.lab import Lab
from lab_support.jobs import claimed, run_through, spec_of_number

BUILD = ["sh", "-c", "test ! -f broken && cp net.txt out.pte"]


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    done = subprocess.run(
        ["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Commits c0 to c9: c6 makes the program slower, c4 does not build, c2 changes a comment."""
    monkeypatch.setenv("ETSCOPE_LAB", str(tmp_path / "lab"))
    monkeypatch.delenv("ETSCOPE_LAB_SERVER", raising=False)
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    for number in range(10):
        if number != 2:
            text = f"program {number} {'slow' if number >= 6 else 'fast'}"
            (folder / "net.txt").write_text(text)
        if number == 4:
            (folder / "broken").touch()
        if number == 5:
            (folder / "broken").unlink()
        (folder / "notes").write_text(str(number))
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", f"c{number}")
        git(folder, "tag", f"c{number}")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """A/B jobs end with a verdict by the content of their programs; the list of them."""
    jobs: list[Job] = []

    def end(lab: Lab, job: Job) -> Job:
        if job.state.is_final:
            return job
        jobs.append(job)
        files = job.spec.files
        texts = [lab.store.open(str(files[one].sha256)) for one in ("model", "baseline")]
        slow = [b"slow" in text.read() for text in texts]
        change = 0.05 * (slow[0] - slow[1])
        is_sure = job.spec.rounds >= int(job.spec.labels.get("wanted", 0))
        verdict = "regressed" if change else "no difference"
        ab = {
            "verdict": verdict if is_sure else "cannot tell",
            "relative": change, "low": change - 0.01, "high": change + 0.01,
            "confidence": 0.99, "judged": job.spec.rounds,
            "rounds_needed": None if is_sure else 60, "reason": "",
        }  # fmt: skip
        token = claimed(lab.database, job)
        assert lab.database.finish(Outcome(job.id, token, State.DONE, {"ab": ab}))
        return lab.job(job.id)

    monkeypatch.setattr(bisect, "wait_for", end)
    return jobs


def found(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any, str]:
    code = main(["lab", "bisect", "--format", "json", *words, *BUILD])
    out, err = capsys.readouterr()
    return code, json.loads(out), err


def guilty(result: Any) -> set[str]:
    return {row["subject"] for row in result["rows"] if row["guilty"]}


def test_the_commit_is_found_and_the_work_goes_on(
    repository: Path,
    ended: list[Job],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    end: Callable[[Lab, Job], Job] = bisect.wait_for

    def interrupted(lab: Lab, job: Job) -> Job:
        if len(ended) == 2:
            raise KeyboardInterrupt
        return end(lab, job)

    monkeypatch.setattr(bisect, "wait_for", interrupted)
    assert main(["lab", "bisect", "c0..c9", "out.pte", *BUILD]) == 130
    capsys.readouterr()
    monkeypatch.setattr(bisect, "wait_for", end)
    code, result, err = found(capsys, "c0..c9", "out.pte")
    assert (code, guilty(result)) == (0, {"c6"}), err
    assert len({job.id for job in ended}) == len(ended) <= 5  # none twice
    assert "c6, A, " in str(result) and "+5.0% (+4.0% to +6.0%)" in str(result)
    assert git(repository, "status", "--porcelain") == ""
    assert git(repository, "worktree", "list").count("\n") == 0
    jobs = len(ended)
    assert found(capsys, "c0..c9", "out.pte")[0] == 0 and len(ended) == jobs


def test_a_commit_without_a_program_stays_a_candidate(
    repository: Path, ended: list[Job], capsys: pytest.CaptureFixture[str]
) -> None:
    for number in (4, 5):
        (repository / f"{number}").touch()
    code, result, _ = found(capsys, "c1..c3", "out.pte")
    assert (code, guilty(result)) == (4, set())  # c3 is as fast
    assert len(ended) == 1
    code, _, err = found(capsys, "c2..c6", "out.pte")
    assert code == 0 and "against" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["c9..c0", "out.pte"], "does not descend from"),
        (["c0..nothing", "out.pte"], "git rev-parse"),
        (["c0..c9", "other.pte"], "the command wrote no other.pte"),
        (["c3..c4", "out.pte"], "exit code is 1"),
        (["abc", "out.pte"], "neither EARLY..LATE nor the id of an alarm"),
    ],
)
def test_what_cannot_be_searched_is_refused(
    repository: Path,
    ended: list[Job],
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    assert main(["lab", "bisect", *words, *BUILD]) == 2
    assert message in capsys.readouterr().err


def test_a_job_file_names_the_program_and_the_rest(
    repository: Path, ended: list[Job], capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "job.yaml").write_text("{model: out.pte, threads: 3, rounds: 30}")
    code, result, err = found(capsys, "c5..c6", "job.yaml")
    assert (code, guilty(result)) == (0, {"c6"}), err
    (job,) = ended
    assert (job.spec.threads, job.spec.rounds) == (3, 30)


def test_a_doubtful_job_is_repeated_with_more_rounds(
    repository: Path,
    ended: list[Job],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    end: Callable[[Lab, Job], Job] = bisect.wait_for

    def doubtful(lab: Lab, job: Job) -> Job:
        plain = job.spec.model_copy(update={"labels": {**job.spec.labels, "wanted": "60"}})
        return end(lab, replace(job, spec=plain))

    monkeypatch.setattr(bisect, "wait_for", doubtful)
    code, result, err = found(capsys, "c0..c9", "out.pte")
    assert (code, guilty(result)) == (0, {"c6"}), err
    assert [job.spec.rounds for job in ended[:3]] == [20, 60, 60]
    assert len({job.id for job in ended}) == len(ended)


def test_an_alarm_has_the_commits_the_job_and_the_nights(
    repository: Path, ended: list[Job], capsys: pytest.CaptureFixture[str]
) -> None:
    commits = [git(repository, "rev-parse", f"c{number}") for number in range(10)]
    with Lab.open() as lab:
        for number in (0, 1, 2, 3, 5, 7, 8, 9):
            spec = spec_of_number(
                number, labels={"commit": commits[number][:10]}, model_name="net.pte", threads=3
            )
            time = (10.5 if number >= 6 else 10.0) + 0.01 * (number % 3)
            job = run_through(lab.database, spec, time)
        (series,) = lab.history()
        now = job.created_at
        ab = {
            "verdict": "regressed", "relative": 0.05, "low": 0.04, "high": 0.06,
            "confidence": 0.99, "judged": 20, "rounds_needed": None, "reason": "",
        }  # fmt: skip
        confirmed = run_through(lab.database, spec_of_number(98), summary={"ab": ab})
        alarm = Alarm(
            "abc123", AlarmState.OPEN, series.key, job.id, job.id, job.id, 0.05, 10.01, now, now,
            confirmed.id, "regressed", found={"commits": [commits[0], commits[9]]},
        )  # fmt: skip
        lab.database.add_alarm(alarm)
    code, result, err = found(capsys, "abc1", "out.pte")
    assert (code, guilty(result)) == (0, {"c6"}), err
    # The alarm has compared the ends, and the nights leave one commit, which is confirmed.
    assert len(ended) == 1
    assert {(one.spec.threads, one.spec.device.name) for one in ended} == {(3, "host")}
