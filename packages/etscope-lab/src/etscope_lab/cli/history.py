"""`etscope lab history, alarms`: what became slower."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from etscope.cli.options.common import output_options
from etscope.cli.output.tables import OutputOptions
from etscope_lab.cli.options import LabOptions, in_lab

if TYPE_CHECKING:
    from etscope.model.table import Table
    from etscope_lab.jobs.records import Alarm, Series

_FAILS = {"regressed": ("regressed",), "suspicious": ("regressed", "suspicious")}
_DEFAULT = ("model", "device", "when", "p50", "energy", "standing", "change", "commit")
_TO_STATE = {"acknowledge": "acknowledged", "close": "closed", "reopen": "open"}
_ALL = 200  # results of a series
_NEWEST = 10  # results of a series whose verdicts fail a command


@click.command()
@click.argument("model", required=False)
@click.argument("device", required=False)
@click.option(
    "--fail-on", type=click.Choice(sorted(_FAILS)),
    help=f"Exit with 1 if one of the newest {_NEWEST} results has this standing.",
)  # fmt: skip
@in_lab
@partial(output_options, to_file=False)
def history(
    model: str | None,
    device: str | None,
    fail_on: str | None,
    where: LabOptions,
    output: OutputOptions,
) -> int:
    """Show the newest result of each MODEL and DEVICE, with its verdict; of one MODEL, all results.

    A result is regressed if a slower level begins with it, suspicious if too few results are
    slower to be sure. Exit codes: 0; 1: --fail-on; 4: no results, or with --fail-on none that can
    be judged.
    """
    with where.open() as lab:
        found = [one for one in lab.history(model, device) if one.points]
    shown = [n for n in _DEFAULT if n != "energy" or any(one.unit == "mJ" for one in found)]
    output.write_tables([_table(found, 1 if model is None else _ALL)], None, shown)
    if not found:
        click.echo("no results: etscope lab submit MODEL", err=True)
        return 4
    if fail_on is None:
        return 0
    standings = [str(point.standing) for one in found for point in one.points[-_NEWEST:]]
    if set(standings) & set(_FAILS[fail_on]):
        return 1
    if set(standings) == {"unjudged"}:
        for reason in {one.unjudged for one in found if one.unjudged}:
            click.echo(reason, err=True)
        return 4
    return 0


def _table(found: Sequence[Series], limit: int) -> Table:
    from etscope.model.table import Column, Kind, Table
    from etscope_lab.jobs.records import short_commit

    rows = [(one, point) for one in found for point in one.points[-limit:]]

    def times(name: str, unit: str) -> list[float | None]:
        return [getattr(point, name) if one.unit == unit else None for one, point in rows]

    columns: dict[Column, list[Any]] = {
        Column("model"): [one.model for one, _ in rows],
        Column("method", priority=6): [one.method for one, _ in rows],
        Column("metric", priority=6): [one.metric for one, _ in rows],
        Column("device"): [one.device for one, _ in rows],
        Column("backend", priority=6): [one.backend for one, _ in rows],
        Column("runner", priority=6): [one.runner for one, _ in rows],
        Column("threads", Kind.COUNT, priority=6): [one.threads for one, _ in rows],
        Column("inputs", priority=6): [one.inputs for one, _ in rows],
        Column("when", title="at (UTC)"): [f"{point.at:%Y-%m-%d %H:%M:%S}" for _, point in rows],
        Column("p50", Kind.DURATION, "ms"): times("p50_ms", "ms"),
        Column("energy", Kind.FLOAT, "mJ"): times("p50_ms", "mJ"),
        Column("expected", Kind.DURATION, "ms", priority=5): times("expected_ms", "ms"),
        Column("expected_energy", Kind.FLOAT, "mJ", priority=6): times("expected_ms", "mJ"),
        Column("standing"): [str(point.standing) for _, point in rows],
        Column("change", Kind.SHARE): [point.relative for _, point in rows],
        Column("commit"): [short_commit(point.labels.get("commit", "")) for _, point in rows],
        Column("job", priority=6): [point.job_id for _, point in rows],
        Column("before", priority=6): [point.before for _, point in rows],
        Column("software", priority=6): [point.software for _, point in rows],
    }
    return Table.of(columns, title="History")


@click.command()
@click.argument("action", required=False, type=click.Choice(sorted(_TO_STATE)))
@click.argument("alarm_ids", nargs=-1, metavar="[ALARM]...")
@in_lab
@partial(output_options, to_file=False)
def alarms(
    action: str | None, alarm_ids: tuple[str, ...], where: LabOptions, output: OutputOptions
) -> int:
    """Show the models that became slower: open and acknowledged alarms. Or acknowledge, close or
    reopen alarms, by their ids or the beginnings of them.

    Exit codes: 0: no alarm is open; 1: one is; 2: an alarm cannot be set so; 4: no such alarm.
    """
    from etscope.errors import UsageError
    from etscope_lab.jobs.records import AlarmState

    if action and not alarm_ids:
        raise UsageError(f"{action} needs ids of alarms", hint="etscope lab alarms shows them")
    with where.open() as lab:
        if action:
            state = AlarmState(_TO_STATE[action])
            shown = [lab.set_alarm(name, state) for name in alarm_ids]
        else:
            shown = list(lab.alarms((AlarmState.OPEN, AlarmState.ACKNOWLEDGED)))
    output.write_tables([_alarms_table(shown)])
    return int(any(one.state is AlarmState.OPEN for one in shown))


def _alarms_table(found: Sequence[Alarm]) -> Table:
    from etscope.model.table import Column, Kind, Table
    from etscope_lab.jobs.records import short_commit

    commits = [one.found.get("commits") or ("", "") for one in found]
    operators = [one.found.get("operator") or {} for one in found]
    columns: dict[Column, list[Any]] = {
        Column("id"): [one.id for one in found],
        Column("state"): [str(one.state) for one in found],
        Column("opened", title="opened (UTC)"): [
            f"{one.opened_at:%Y-%m-%d %H:%M:%S}" for one in found
        ],
        Column("model"): [one.series["model"] for one in found],
        Column("device"): [one.series["device"] for one in found],
        Column("change", Kind.SHARE): [one.relative for one in found],
        Column("commits"): [
            "..".join(map(short_commit, pair)) if pair[0] else "" for pair in commits
        ],
        Column("operator"): [one.get("name", "") for one in operators],
        Column("source"): [one.get("source") or "" for one in operators],
        Column("reason", priority=5): [one.reason for one in found],
        Column("by", priority=6): [one.by for one in found],
        Column("before", priority=6): [one.before for one in found],
        Column("job", priority=6): [one.job for one in found],
        Column("ab_job", priority=6): [one.ab_job for one in found],
    }
    return Table.of(columns, title="Alarms")
