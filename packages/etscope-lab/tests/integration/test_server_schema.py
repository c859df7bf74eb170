"""The API against its own description: schemathesis makes requests that it allows and requests
that it does not, and holds the answers against it.

A longer run by hand: `etscope lab serve` on a new --home with a token, then
`st run URL/api/openapi.json -H "Authorization: Bearer …" --max-examples 500`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import pytest

pytest.importorskip("schemathesis")
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import negative_data_rejection

from etscope_lab.jobs.records import Alarm, AlarmState
from etscope_lab.jobs.spec import JobSpec
from etscope_lab.lab import Lab
from etscope_lab.server.app import create_app
from etscope_lab.server.settings import Settings, local_secret
from lab_support.server import a_done_job, a_job
from tests.support.fuzz import IS_NIGHT

_FILES = {"reference", "tokens"} | {
    name for name, field in JobSpec.model_fields.items() if "FileRef" in str(field.annotation)
}
_settings = Settings(
    hosts=("testserver",),
    require_tokens=True,
    failures_per_minute=10**6,
)


@pytest.fixture(scope="module")
def description(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """What schemathesis knows of a lab. Half of the requests are about jobs and files that are
    there: else nearly all would end with 404."""
    with Lab.open(tmp_path_factory.mktemp("lab")) as lab:
        a_job(lab)
        done = a_done_job(lab, {"run.etdp": b"events", "log.txt": b"said"})
        real = {"job_id": done.id, "sha256": done.spec.model.sha256, "name": "run.etdp"}
        now = datetime.now(timezone.utc)
        alarm = Alarm(
            "a1", AlarmState.OPEN, lab.history()[0].key, "b", done.id, done.id, 0.05, 1.0, now, now
        )
        assert lab.database.add_alarm(alarm)
        real["alarm_id"] = alarm.id

        def map_path_parameters(context: Any, values: dict[str, Any]) -> dict[str, Any]:
            # Which: by what was made up, so that a failure can be repeated.
            return values and {
                name: real[name] if _is_replaced(name, str(value)) else _unknown(name, value)
                for name, value in values.items()
            }

        def map_query(context: Any, values: dict[str, Any]) -> dict[str, Any]:
            return values and {
                name: _unknown("job_id", value) if name in ("first", "second") else value
                for name, value in values.items()
            }

        def map_body(context: Any, body: Any) -> Any:
            """Name files by content: the schema is that of a job, which may have paths, too."""
            if not isinstance(body, dict):
                return body
            stored = f"sha256:{real['sha256']}"
            return {
                name: stored if name in _FILES and value else map_body(context, value)
                for name, value in body.items()
            }

        found = schemathesis.openapi.from_asgi("/api/openapi.json", create_app(lab, _settings))
        found.hook(map_path_parameters)
        found.hook(map_query)
        found.hook(map_body)
        yield found


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_answers_are_what_the_description_says(description: Any, mode: GenerationMode) -> None:
    operations = [found.ok() for found in description.get_all_operations()]
    assert len(operations) >= 18
    for operation in operations:
        if mode is GenerationMode.NEGATIVE and not _takes_something(operation):
            continue

        @settings(
            max_examples=100 if IS_NIGHT else 5,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def holds(case: Any) -> None:
            # What makes a made-up request wrong may be mended by our header, or be a parameter that
            # nobody asked for: not each of them has to be refused.
            case.call_and_validate(
                headers={"Authorization": f"Bearer {local_secret(_settings.key)}"},
                excluded_checks=[negative_data_rejection],
            )

        holds()


_ID = r"[0-9A-Za-z_-]{1,64}"
_GOOD = {"job_id": _ID, "alarm_id": _ID, "sha256": r"[0-9a-f]{64}", "name": r"[^/\\\\]{1,255}"}


def _is_replaced(name: str, value: str) -> bool:
    """Of good values, all hashes and half of the others."""
    return bool(re.fullmatch(_GOOD[name], value)) and (name == "sha256" or len(value) % 2 == 0)


def _unknown(name: str, value: Any) -> Any:
    """A good id begins none of a job: a few of its digits may begin several jobs, by chance, and
    are refused then as they should be."""
    good = name.endswith("_id") and re.fullmatch(_GOOD[name], str(value))
    return f"z{value}"[:64] if good else value


def _takes_something(operation: Any) -> bool:
    """Whether there is anything of which a wrong value can be made."""
    return bool(operation.path_parameters or operation.query or operation.body)
