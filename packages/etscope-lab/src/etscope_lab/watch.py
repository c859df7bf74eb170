"""Watch the series of a lab: check suspicions by A/B jobs, and send alarms.

A suspicion (`etscope_lab.comparison.changes`) costs an A/B job of the two programs, the last one at
the old level and the newest, on the same device. Only if that job finds the newer one slower is an
alarm open and sent. So false alarms are as rare as an A/B job is wrong, times the
share of false suspicions; and noise between nights, heat and busy machines are in both sides.

Where two programs cannot be compared so (they are the same file, so the device or its software
changed; other inputs or weights; the A/B job failed), an alarm opens when a slower level is sure.

All state is in the database: several engines may watch, and each change of an alarm is made once.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from pydantic import ValidationError
from sqlalchemy.exc import SQLAlchemyError

from etscope.analysis.statistics.compare_samples import Verdict
from etscope.errors import EtscopeError
from etscope_lab.config import Home
from etscope_lab.database import Database
from etscope_lab.jobs.generations import ENERGY, EXECUTION
from etscope_lab.jobs.records import (
    Alarm,
    AlarmState,
    Job,
    LabApi,
    Point,
    Series,
    Standing,
    State,
    short_commit,
    unit_of,
)
from etscope_lab.jobs.spec import DeviceSelector, JobSpec
from etscope_lab.sinks import Sink, sinks_of

SUBMITTER = "watch"
_POINTS = 200  # of a series that are judged
_FIRST_LOOK = timedelta(days=1)  # results of this age are looked at when an engine starts
_OVERLAP = timedelta(minutes=5)  # jobs may be committed in another order than they end
_REST = 60.0  # seconds between two looks when no job ends
_SOON = 2.0  # seconds that ends of jobs are collected for one look

_logger = logging.getLogger("etscope_lab")


class Watch(threading.Thread):
    """Looks at the results of a lab, from `start` to `close`."""

    def __init__(
        self, home: Home, database: Database, lab: LabApi, sinks: Sequence[Sink] | None = None
    ) -> None:
        """sinks: receivers of alarms. Default: the ones in lab.yaml."""
        super().__init__(name="etscope-lab-watch", daemon=True)
        self._home, self._database, self._lab = home, database, lab
        self._options = home.config.watch
        self._sinks = sinks_of(self._options) if sinks is None else sinks
        self._since = datetime.now(timezone.utc) - _FIRST_LOOK
        self._judged: dict[tuple[str, str], tuple[int, int]] = {}  # as `measured_since`
        self._wake = threading.Event()
        self._closing = False

    def wake(self) -> None:
        """Look at the results soon."""
        self._wake.set()

    def close(self) -> None:
        """Stop after the look that is under way."""
        self._closing = True
        self._wake.set()
        if self.is_alive():
            self.join()

    def run(self) -> None:
        while not self._closing:
            try:
                self.look()
            except (EtscopeError, SQLAlchemyError, OSError) as error:
                _logger.warning("the lab's series are not watched now: %s", error)
            except Exception:  # a bug of ours must not leave the lab without a watch
                _logger.exception("the lab's watch failed, and goes on")
            if self._wake.wait(_REST) and not self._closing:
                threading.Event().wait(_SOON)
            self._wake.clear()

    def look(self) -> None:
        """Do once all that is due: results of A/B jobs, new suspicions, alarms to send."""
        for alarm in self._database.alarms((AlarmState.CHECKING,)):
            self._conclude(alarm)
        begun = datetime.now(timezone.utc)
        measured = self._database.measured_since(self._since - _OVERLAP)
        for place, results in measured.items():
            if self._judged.get(place) != results:
                for series in self._lab.history(*place, limit=_POINTS):
                    self._judge(series)
        self._since, self._judged = begun, measured
        for alarm in self._database.alarms((AlarmState.OPEN,)):
            self._tell(alarm)

    # -- one series

    def _judge(self, series: Series) -> None:
        self._close_if_fast_again(series)
        fair = [point for point in series.points if not point.marked]
        found = [
            point
            for point in fair
            if point.standing is Standing.REGRESSED
            or (point.standing is Standing.SUSPICIOUS and point.before is not None)
        ]
        if not found or _is_covered(series, found[-1], fair):
            return
        point, newest = found[-1], fair[-1]
        before, after = self._lab.job(str(point.before)), self._lab.job(newest.job_id)
        now = datetime.now(timezone.utc)
        alarm = Alarm(
            id=secrets.token_hex(6),
            state=AlarmState.CHECKING,
            series=series.key,
            before=before.id,
            job=point.job_id,
            newest=newest.job_id,
            relative=point.relative or 0.0,
            expected_ms=point.expected_ms or 0.0,
            opened_at=now,
            changed_at=now,
        )
        is_energy = series.metric == ENERGY
        spec = None if is_energy else ab_spec(before, after, self._options.min_effect)
        failed = any(_is_of(one, point, fair) and not one.verdict for one in series.alarms)
        if spec is not None and not failed:
            job = self._lab.submit(spec, submitter=SUBMITTER)
            reason = "an A/B job compares the programs before and after"
            self._database.add_alarm(replace(alarm, ab_job=job.id, reason=reason))
        elif point.standing is Standing.REGRESSED:
            slower = [one for one in fair if one.at >= point.at]
            why = "A/B jobs measure times" if is_energy else _why_no_ab(before, after, failed)
            more = "take more" if is_energy else "are slower"
            reason = f"{len(slower)} jobs in a row {more}; {why}"
            found_out = self._find_out(before, after)
            opened = replace(alarm, state=AlarmState.OPEN, reason=reason, found=found_out)
            self._database.add_alarm(opened)

    def _close_if_fast_again(self, series: Series) -> None:
        places = {point.job_id: n for n, point in enumerate(series.points)}
        for alarm in series.alarms:
            if alarm.state not in (AlarmState.OPEN, AlarmState.ACKNOWLEDGED):
                continue
            for point in series.points[places.get(alarm.job, len(places)) :]:
                high = alarm.expected_ms * (1 + self._options.min_effect)
                if point.standing is Standing.IMPROVED and point.p50_ms <= high:
                    self._database.change_alarm(
                        alarm.id,
                        alarm.state,
                        state=AlarmState.CLOSED,
                        reason=f"job {point.job_id} is as fast as before",
                    )
                    break

    def _conclude(self, alarm: Alarm) -> None:
        """Open or dismiss an alarm after the end of its A/B job."""
        job = self._lab.job(str(alarm.ab_job))
        if not job.state.is_final:
            return
        found = job.summary.get("ab") or {}
        verdict = str(found.get("verdict") or "")
        changes: dict[str, Any] = {"state": AlarmState.DISMISSED, "verdict": verdict}
        if job.state is not State.DONE or not verdict:
            changes |= {"verdict": "", "reason": f"A/B job {job.id} is {job.state}: {job.error}"}
            self._judged.clear()  # what a failed job does not confirm is judged without it
        elif verdict != Verdict.REGRESSED.value:
            changes["reason"] = f"A/B job {job.id}: {verdict}"
        else:
            low, high = found.get("low"), found.get("high")
            between = "" if low is None else f", {low:+.1%} to {high:+.1%}"
            before, after = self._lab.job(alarm.before), self._lab.job(alarm.newest)
            changes |= {
                "state": AlarmState.OPEN,
                "relative": float(found["relative"]),
                "reason": f"A/B job {job.id} of {found['judged']} rounds confirms it{between}",
                "found": self._find_out(before, after),
            }
        self._database.change_alarm(alarm.id, AlarmState.CHECKING, **changes)

    def _find_out(self, before: Job, after: Job) -> dict[str, Any]:
        """Collect what is known about the cause: commits, software, the operator that lost most."""
        found: dict[str, Any] = {}
        commits = [job.spec.labels.get("commit") for job in (before, after)]
        if all(commits) and commits[0] != commits[1]:
            found["commits"] = commits
        with suppress(EtscopeError):
            compared = self._lab.compare(before.id, after.id)
            versions = [one for one in compared["environment"] if one["name"] in _SOFTWARE]
            if versions:
                found["software"] = [_versions(versions, side) for side in ("first", "second")]
            slower = [one for one in compared["operators"] if one["change_ms"] > 0]
            if slower:
                shown = ("name", "module", "source", "change_ms")
                found["operator"] = {name: slower[0][name] for name in shown}
        return found

    # -- people

    def _tell(self, alarm: Alarm) -> None:
        """Send an open alarm to the sinks that lack it; after a failure, again at the next look."""
        url = self._home.server_url
        link = f"{url.rstrip('/')}/alarms#{alarm.id}" if url else None
        for sink in self._sinks:
            if sink.name in alarm.told:
                continue
            try:
                sink.tell(alarm, sentence(alarm), link)
            except EtscopeError as error:
                _logger.warning("alarm %s is not delivered: %s", alarm.id, error)
                continue
            told = self._database.change_alarm(
                alarm.id, AlarmState.OPEN, told=(*alarm.told, sink.name)
            )
            if told is None:  # a person acknowledged it meanwhile
                return
            alarm = told


_SOFTWARE = ("executorch", "etscope")


def _versions(rows: Sequence[Mapping[str, Any]], side: str) -> str:
    return ", ".join(f"{row['name']} {row[side]}" for row in rows)


def _is_of(alarm: Alarm, point: Point, fair: Sequence[Point]) -> bool:
    """True when the alarm was raised at the point or later: it is about this change."""
    ids = [one.job_id for one in fair]
    return alarm.newest in ids and ids.index(alarm.newest) >= ids.index(point.job_id)


def _is_covered(series: Series, point: Point, fair: Sequence[Point]) -> bool:
    """True when an alarm is about the change at a point, or an A/B job has answered it."""
    return any(
        _is_of(alarm, point, fair) and (alarm.state is not AlarmState.DISMISSED or alarm.verdict)
        for alarm in series.alarms
    )


def _why_no_ab(before: Job, after: Job, failed: bool) -> str:
    if failed:
        return "the A/B job that should confirm it failed"
    if before.spec.model.sha256 == after.spec.model.sha256:
        return "the program is the same: the device or its software changed"
    return "the jobs differ in more than the program, so no A/B job can compare them"


def ab_spec(before: Job, after: Job, min_effect: float) -> JobSpec | None:
    """The A/B job of two jobs' programs on the device of the second; None when they differ in
    anything else that counts, or not at all."""
    old, new = before.spec, after.spec
    if old.model.sha256 == new.model.sha256 or old.data != new.data or old.prompts != new.prompts:
        return None
    plain = new.model_dump(exclude={"quality", "metrics", "name", "duration_seconds"})
    try:
        return JobSpec.model_validate(
            {
                **plain,
                "kind": "ab",
                "baseline": old.model,
                "name": f"is it slower: {new.title}"[:200],
                "min_effect": min_effect,
                "device": DeviceSelector(name=after.device),
            }
        )
    except ValidationError:  # such as a label of a longer name than today's limit
        return None


def sentence(alarm: Alarm) -> str:
    """Say what became slower, by how much, where, since which commit, and why it is sure."""
    series, found = alarm.series, alarm.found
    metric = "" if series["metric"] in (EXECUTION, ENERGY) else f", {series['metric']}"
    after_ms = alarm.expected_ms * (1 + alarm.relative)
    is_energy = series["metric"] == ENERGY
    worse = "takes {:.1%} more energy" if is_energy else "is {:.1%} slower"
    text = (
        f"{series['model']} ({series['method']}{metric}) {worse.format(alarm.relative)} on "
        f"{series['device']}: {alarm.expected_ms:.4g} to {after_ms:.4g} {unit_of(series['metric'])}"
    )
    if commits := found.get("commits"):
        text += f", between commits {' and '.join(map(short_commit, commits))}"
    if software := found.get("software"):
        text += f"; software: {software[0]} to {software[1]}"
    if operator := found.get("operator"):
        places = ", ".join(filter(None, (operator["module"], operator["source"])))
        text += f". Most in {operator['name']}{f' ({places})' if places else ''}: "
        text += f"{operator['change_ms']:+.4g} ms"
    return f"{text}. {alarm.reason[:1].upper()}{alarm.reason[1:]}."
