"""`etscope lab bisect`: which commit made a program slower."""

from __future__ import annotations

import json
import tempfile
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from etscope.cli.options.common import output_options
from etscope.cli.output.tables import OutputOptions
from etscope.errors import EtscopeError, LabError, UsageError
from etscope_lab.cli.options import LabOptions, in_lab
from etscope_lab.cli.submit import read_spec, wait_for

if TYPE_CHECKING:
    from etscope.model.table import Table
    from etscope_lab.client import Client
    from etscope_lab.commits import Programs
    from etscope_lab.comparison.bisect import Answer, Candidates, Guilty, Walk
    from etscope_lab.jobs.records import Alarm
    from etscope_lab.lab import Lab

_HASH = 12  # characters of a commit that are shown
_NO_PROGRAM = ("failed", "user_error", "invalid")  # states of jobs whose commit is skipped


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("commits", metavar="EARLY..LATE|ALARM")
@click.argument("model", metavar="MODEL|JOB")
@click.argument("build", metavar="COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@in_lab
@partial(output_options, to_file=False)
def bisect(
    commits: str,
    model: str,
    build: tuple[str, ...],
    where: LabOptions,
    output: OutputOptions,
) -> int:
    """Find the commit that made a program slower, by A/B jobs against the EARLY commit.

    COMMAND makes the program of a commit and writes it to the file MODEL. It runs in this folder of
    a separate worktree. Commits for which it fails are skipped; exit code 125 means skip. In place
    of MODEL, a job's file (job.yaml) names model, device, inputs, threads and rounds. An alarm's id
    stands for its commits, job and device; the results of its series are used too.

    \b
    etscope lab bisect v1.0..main out/net.etrecord python export.py
    etscope lab bisect 3f9a out/net.etrecord make net

    The same command goes on where an interrupted one stopped. Exit codes: 0 found; 2 no such
    commits; 4 LATE is not slower, several commits are left, or no A/B job confirms the only one.
    """
    from etscope_lab.commits import Programs, candidates_of
    from etscope_lab.comparison.bisect import find_guilty

    with where.open() as lab:
        alarm = None if ".." in commits else _alarm(lab, commits)
        if alarm is not None and not alarm.found.get("commits"):
            raise UsageError(f"alarm {alarm.id} does not know its commits", hint="EARLY..LATE")
        early, late = alarm.found["commits"] if alarm else commits.split("..", 1)
        candidates = candidates_of(early, late.strip(".") or "HEAD")
        plain: dict[str, Any] = {}
        if model.endswith((".yaml", ".yml", ".json")):
            plain = read_spec(model)
            model = str(plain.get("model", ""))
        elif alarm is not None:
            newest = lab.job(alarm.newest)
            plain = newest.spec.model_dump(mode="json", exclude={"etrecord"})
            plain["device"] = newest.device
        programs = Programs("bisect", model, build)
        search = _Search(lab, candidates, programs, plain)
        if alarm is not None:
            search.know(alarm)
        try:
            found = find_guilty(candidates, search.walk, search.measure, search.nights(alarm))
        finally:
            programs.close()
        output.write_tables([_table(candidates, search.walk, found, _operator(search, found))])
    return 0 if found.confirmed else 4


def _alarm(lab: Lab | Client, name: str) -> Alarm:
    found = [one for one in lab.alarms() if one.id.startswith(name)]
    if len(found) != 1:
        raise UsageError(
            f"{name!r} is neither EARLY..LATE nor the id of an alarm",
            hint="etscope lab alarms shows them",
        )
    return found[0]


class _Search:
    """A/B jobs of commits, and the file that keeps their results for the next call."""

    def __init__(
        self, lab: Lab | Client, candidates: Candidates, programs: Programs, plain: dict[str, Any]
    ) -> None:
        from etscope_lab.comparison.bisect import Answer, Walk

        self.lab, self.candidates, self.programs = lab, candidates, programs
        left_out = ("kind", "name", "quality", "metrics", "model", "baseline", "etrecord")
        self._plain = {key: value for key, value in plain.items() if key not in left_out}
        ends = [candidates.good, candidates.bad]
        self._key = [ends, self._plain]
        self._file = programs.folder / "state.json"
        self.walk = Walk()
        with suppress(OSError, ValueError, KeyError, TypeError):  # none, or one of another version
            kept = json.loads(self._file.read_bytes())
            if kept["key"] == json.loads(json.dumps(self._key)):
                answers = [Answer(**one) for one in kept["answers"]]
                self.walk = Walk(answers, kept["skipped"], kept["rounds"])

    def know(self, alarm: Alarm) -> None:
        """Take the A/B job that confirmed an alarm, of the two ends, for the first answer."""
        from etscope_lab.comparison.bisect import Answer

        if alarm.ab_job is not None and alarm.verdict and not self.walk.answers:
            job, ends = self.lab.job(alarm.ab_job), (self.candidates.bad, self.candidates.good)
            self.walk.answers.append(Answer.of_summary(*ends, job.summary["ab"], job.id))

    def nights(self, alarm: Alarm | None) -> list[Answer]:
        """The results of the alarm's series as answers."""
        if alarm is None:
            return []
        every = self.lab.history(alarm.series["model"], alarm.series["device"])
        series = next((one for one in every if one.key == dict(alarm.series)), None)
        return [] if series is None else self.candidates.nights(series, alarm.expected_ms)

    def measure(self, commit: str, baseline: str) -> Answer:
        """Compare the programs of two commits, and keep what is known; see `find_guilty`."""
        self._keep()
        answer = self._measured(commit, baseline)
        change = f"{answer.verdict}, {_share(answer.relative)}"
        click.echo(f"{commit[:_HASH]} against {baseline[:_HASH]}: {change}", err=True)
        return answer

    def _measured(self, commit: str, baseline: str) -> Answer:
        from etscope_lab.comparison.bisect import SAME, Answer, Skipped
        from etscope_lab.jobs.spec import spec_of

        hashes = [self.programs.sha256(one) for one in (commit, baseline)]
        if hashes[0] == hashes[1]:
            return Answer(commit, baseline, 0.0, 0.0, SAME)
        is_known = self.walk.known(commit, baseline) is not None  # then more rounds are wanted
        for one in () if is_known else self.walk.answers:  # other commits with the same programs
            if [self.programs.sha256(name) for name in (one.commit, one.baseline)] == hashes:
                return replace(one, commit=commit, baseline=baseline)
        spec = spec_of(
            {
                **self._plain,
                **({"rounds": self.walk.rounds} if self.walk.rounds else {}),
                "kind": "ab",
                "name": f"bisect {commit[:_HASH]}",
                "model": str(self.programs.path(commit)),
                "baseline": str(self.programs.path(baseline)),
                "labels": {"bisect": f"{self.candidates.good[:_HASH]}..", "commit": commit},
            }
        )
        job = wait_for(self.lab, self.lab.submit(spec, again=is_known))
        if str(job.state) in _NO_PROGRAM:
            raise Skipped(commit, f"A/B job {job.id} is {job.state}: {job.error}")
        if job.state != "done":
            raise LabError(f"A/B job {job.id} is {job.state}: {job.error}", hint="try again")
        return Answer.of_summary(commit, baseline, job.summary["ab"], job.id)

    def _keep(self) -> None:
        from etscope.formats.bytes.files import atomic_write, make_folder

        make_folder(self._file.parent)
        kept = {
            "key": self._key,
            "answers": [asdict(one) for one in self.walk.answers],
            "skipped": self.walk.skipped,
            "rounds": self.walk.rounds,
        }
        with atomic_write(self._file) as file:
            file.write(json.dumps(kept).encode())


def _share(value: float | None) -> str:
    return "?" if value is None else f"{value:+.1%}"


def _operator(search: _Search, found: Guilty) -> str:
    """Name the operator of the guilty commit that lost most, with its source; "" if unknown."""
    from etscope.analysis.statistics.compare_samples import Policy
    from etscope.formats.run_json import RUN_ETDP
    from etscope_lab.comparison.compare import Dump, operator_changes

    answer = found.confirmed
    names = [f"baseline.{RUN_ETDP}", RUN_ETDP]
    if answer is None or not set(names) <= set(search.lab.job(answer.job).artifacts):
        return ""
    with tempfile.TemporaryDirectory() as folder:
        paths = search.lab.fetch(answer.job, folder, names)
        explained = [search.programs.path(one) for one in (answer.baseline, answer.commit)]
        dumps = [Dump(path, (one,)) for path, one in zip(paths, explained, strict=True)]
        try:
            rows, _ = operator_changes(dumps[0], dumps[1], Policy())
        except EtscopeError as error:
            return f"Operators are not compared: {error.message}."
    slower = next((row for row in rows if row["change_ms"] > 0), None)
    if slower is None:
        return ""
    places = ", ".join(filter(None, (slower["module"], slower["source"])))
    return f"Most in {slower['name']}{f' ({places})' if places else ''}: " + (
        f"{slower['change_ms']:+.4g} ms."
    )


def _table(candidates: Candidates, walk: Walk, found: Guilty, operator: str) -> Table:
    from etscope.model.table import Column, Kind, Table
    from etscope_lab.commits import git

    place = {name: n for n, name in enumerate(candidates.names)}
    rows: list[tuple[str, Answer | None]] = [(one.commit, one) for one in walk.answers]
    measured = {name for name, _ in rows}
    rows += [(name, None) for name in {*found.commits, *walk.skipped} - measured]
    rows.sort(key=lambda row: place.get(row[0], -1))
    subjects = {name: git("log", "-1", "--format=%s", name) for name, _ in rows}
    columns: dict[Column, list[Any]] = {
        Column("commit"): [name[:_HASH] for name, _ in rows],
        Column("subject"): [subjects[name] for name, _ in rows],
        Column("against"): [one and one.baseline[:_HASH] for _, one in rows],
        Column("change", Kind.SHARE): [one and one.relative for _, one in rows],
        Column("low", Kind.SHARE, priority=5): [one and one.low for _, one in rows],
        Column("high", Kind.SHARE, priority=5): [one and one.high for _, one in rows],
        Column("verdict"): [one.verdict if one else walk.skipped.get(n, "") for n, one in rows],
        Column("job", priority=6): [one and one.job for _, one in rows],
        Column("guilty", Kind.BOOL): [name in found.commits for name, _ in rows],
    }
    notes = [_sentence(candidates, walk, found), operator]
    jobs = f"{len(candidates.names)} commits, {walk.jobs} A/B jobs."
    return Table.of(columns, title="Bisect", notes=(*filter(None, notes), jobs))


def _sentence(candidates: Candidates, walk: Walk, found: Guilty) -> str:
    from etscope_lab.commits import git

    def interval(one: Answer) -> str:
        ends = "" if one.low is None else f" ({_share(one.low)} to {_share(one.high)})"
        return f"{_share(one.relative)}{ends}"

    ends = f"{candidates.bad[:_HASH]} against {candidates.good[:_HASH]}: {interval(found.step)}"
    if not found.commits:
        why = ": ".join(filter(None, (found.step.verdict, found.step.reason)))
        return f"The later commit is not shown to be slower. {ends}, {why}."
    if len(found.commits) > 1:
        shown = ", ".join(name[:_HASH] for name in found.commits[:20])
        skipped = len(set(found.commits) & set(walk.skipped))
        left = f" {skipped} of them have no program that runs." if skipped else ""
        return f"One of {len(found.commits)} commits made it slower: {shown}.{left} {ends}."
    (commit,) = found.commits
    named = f"{commit[:_HASH]} ({git('log', '-1', '--format=%s, %an, %as', commit)})"
    if found.confirmed is None:
        why = "an A/B job with the commit before is missing or does not show it"
        return f"{named} probably made it slower; {why}. {ends}."
    before = found.confirmed.baseline[:_HASH]
    return (
        f"{named} made it slower than {before}: {interval(found.confirmed)}. Whole range: {ends}."
    )
