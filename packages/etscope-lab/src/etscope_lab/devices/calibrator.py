"""Decides when the lab's engine has a device calibrated: once, after a job on it is done."""

from __future__ import annotations

import json
import logging
import os
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from etscope.formats.calibration import VARIABLE
from etscope_lab.devices.peaks import (
    CalibrationOrder,
    DeviceCalibration,
    description_of,
    due_threads,
)
from etscope_lab.jobs.records import DeviceConfig

if TYPE_CHECKING:
    from etscope_lab.database import Database

_logger = logging.getLogger("etscope_lab")


class Calibrator:
    """Orders calibrations of devices, by the environments of done jobs. For the engine's thread.

    store: URL of the lab's store. wanted: False to order nothing. Nothing is ordered either if
    `$ETSCOPE_CALIBRATION` is set.
    """

    def __init__(self, database: Database, store: str, *, wanted: bool) -> None:
        self._database, self._store = database, store
        self._wanted = wanted and VARIABLE not in os.environ
        self._done: dict[str, Mapping[str, Any]] = {}  # device: environment of its last job
        self._tried: set[str] = set()  # by this engine: a device that stays unmeasured rests

    def note_done(self, device: str, environment: Mapping[str, Any]) -> None:
        """Note the environment of a job that was done on a device."""
        if self._wanted and environment.get("runner"):
            self._done[device] = environment

    def due(self, config: DeviceConfig) -> CalibrationOrder | None:
        """Return the order to calibrate a device after its last job; None if its kept calibration
        is still valid, or this one was tried before.
        """
        environment = self._done.get(config.name)
        if environment is None:
            return None
        runner, threads = environment["runner"], environment.get("threads")
        attributes = environment.get("device") or {}
        description = description_of(config, attributes, environment.get("executorch"))
        found = self._database.calibrations(config.name)
        kept = next((one for one in found if one.runner == runner), None)
        sizes = due_threads(kept, description, threads)
        del self._done[config.name]
        key = json.dumps([config.name, runner, sizes, description], sort_keys=True, default=str)
        if sizes is None or key in self._tried:
            return None
        self._tried.add(key)
        token = uuid.uuid4().hex
        return CalibrationOrder(token, config, self._store, runner, sizes, description)

    def keep(self, found: DeviceCalibration) -> None:
        """Keep the result of a calibration; for a device that cannot be calibrated, the reason."""
        self._database.keep_calibration(found)
        if found.error:
            _logger.warning(
                "%s (%s runner) cannot be calibrated; it is tried again only after a change: %s",
                found.device, found.runner, found.error,
            )  # fmt: skip
        else:
            _logger.info("%s (%s runner) is calibrated", found.device, found.runner)

    def known_of(self, device: str) -> tuple[Mapping[str, Any], ...]:
        """Return the contents of a device's calibrations, for an order."""
        found = self._database.calibrations(device)
        return tuple(one.content for one in found if one.content is not None)
