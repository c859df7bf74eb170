"""Decides when the lab's engine has a device calibrated: once, after a job on it is done; again
while that calibration is marked, as of a busy machine, after a job whose conditions were held."""

from __future__ import annotations

import json
import logging
import math
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from etscope.formats.calibration import VARIABLE
from etscope_lab.devices.peaks import (
    CalibrationOrder,
    DeviceCalibration,
    description_of,
    due_threads,
)
from etscope_lab.jobs.records import DeviceConfig
from etscope_lab.worker.conditions import is_lasting

if TYPE_CHECKING:
    from etscope_lab.database import Database

_AGAIN = 3600.0  # seconds until a marked calibration is repeated once more; doubled each time

_logger = logging.getLogger("etscope_lab")


class Calibrator:
    """Orders calibrations of devices, by the environments of done jobs. For the engine's thread.

    store: URL of the lab's store. wanted: False to order nothing. Nothing is ordered either if
    `$ETSCOPE_CALIBRATION` is set.
    """

    def __init__(self, database: Database, store: str, *, wanted: bool) -> None:
        self._database, self._store = database, store
        self._wanted = wanted and VARIABLE not in os.environ
        self._done: dict[str, tuple[Mapping[str, Any], bool]] = {}  # device: of its last job
        # By this engine: when it may be tried again, and the wait after that.
        self._tried: dict[str, tuple[float, float]] = {}

    def note_done(
        self, device: str, environment: Mapping[str, Any], marks: Sequence[str] = ()
    ) -> None:
        """Note the environment of a job that was done on a device, and its marks."""
        if self._wanted and environment.get("runner") in ("python", "native"):  # not of an app
            self._done[device] = environment, all(map(is_lasting, marks))

    def due(self, config: DeviceConfig) -> CalibrationOrder | None:
        """Return the order to calibrate a device after its last job; None if its kept calibration
        is still valid, or this one was tried before.
        """
        environment, is_quiet = self._done.pop(config.name, ({}, False))
        if not environment:
            return None
        runner, threads = environment["runner"], environment.get("threads")
        attributes = environment.get("device") or {}
        description = description_of(config, attributes, environment.get("executorch"))
        found = self._database.calibrations(config.name)
        kept = next((one for one in found if one.runner == runner), None)
        sizes = due_threads(kept, description, threads)
        is_again = sizes is None and is_quiet and kept is not None and bool(kept.marks)
        if is_again and kept is not None:
            sizes = kept.threads
        key = json.dumps(
            [config.name, runner, sizes, description, is_again], sort_keys=True, default=str
        )
        now = time.monotonic()
        at, wait = self._tried.get(key, (now, _AGAIN))
        if sizes is None or now < at:
            return None
        self._tried[key] = (now + wait if is_again else math.inf, 2 * wait)
        token = uuid.uuid4().hex
        return CalibrationOrder(token, config, self._store, runner, sizes, description)

    def keep(self, found: DeviceCalibration) -> None:
        """Keep the result of a calibration; for a device that cannot be calibrated, the reason. Of
        two of the same device and threads the one with fewer marks stays."""
        for one in self._database.calibrations(found.device):
            is_worse = found.error or len(one.marks) < len(found.marks)
            if is_worse and one.content is not None and _case_of(one) == _case_of(found):
                return
        self._database.keep_calibration(found)
        if found.error:
            _logger.warning(
                "%s (%s runner) cannot be calibrated; it is tried again only after a change: %s",
                found.device, found.runner, found.error,
            )  # fmt: skip
        else:
            _logger.info("%s (%s runner) is calibrated", found.device, found.runner)

    def known_of(self, *devices: str) -> dict[str, tuple[Mapping[str, Any], ...]]:
        """Return the contents of devices' calibrations by device, for orders."""
        known: dict[str, tuple[Mapping[str, Any], ...]] = dict.fromkeys(devices, ())
        for one in self._database.calibrations(*known):
            if one.content is not None:
                known[one.device] += (one.content,)
        return known


def _case_of(one: DeviceCalibration) -> tuple[Any, ...]:
    return one.runner, one.threads, one.description
