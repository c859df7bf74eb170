"""Devices that cannot be reached, or go away."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from etscope.errors import DeviceLost, RuntimeFailure
from etscope_lab.devices.driver import Driver, open_driver
from etscope_lab.jobs.records import DeviceConfig
from lab_support import adb_device
from lab_support.devices import device_of, written
from tests.support import sshd


@pytest.fixture(params=["ssh", "adb"])
def unpluggable(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[DeviceConfig, Callable[[], None]]]:
    """A device, and what takes it away."""
    kind = {"ssh": sshd, "adb": adb_device}[request.param]
    if kind.missing():
        pytest.skip(kind.missing() or "")
    if request.param == "ssh":
        with sshd.serving(tmp_path) as server:
            yield DeviceConfig("board", "ssh", server.options), server.stop
    else:
        with adb_device.plugged_in(tmp_path) as (device, options):
            yield DeviceConfig("phone", "adb", options), device.unplug


def test_a_device_that_goes_away_in_mid_command(
    unpluggable: tuple[DeviceConfig, Callable[[], None]], tmp_path: Path
) -> None:
    config, unplug = unpluggable
    begun = tmp_path / "begun"

    def when_begun() -> None:
        written(begun)
        unplug()

    with closing(open_driver(config)) as device:
        waiting = threading.Thread(target=when_begun)
        waiting.start()
        with pytest.raises(DeviceLost, match=f"{config.name} is out of reach"):
            device.call(["sh", "-c", 'echo x >"$1"; exec sleep 1000', "sh", str(begun)], 300)
        waiting.join()
        for call in _calls(device, tmp_path):
            with pytest.raises(DeviceLost):
                call()
    with pytest.raises(DeviceLost, match=f"{config.name} is out of reach: "):
        open_driver(config)


def _calls(device: Driver, folder: Path) -> list[Callable[[], object]]:
    return [
        lambda: device.read(["/proc/loadavg"]),
        lambda: device.call(["true"], 60),
        lambda: device.push({Path(__file__): "file"}),
        lambda: device.pull(["file"], folder),
    ]


def test_a_device_that_cannot_be_used(tmp_path: Path) -> None:
    def use(**options: str) -> None:
        with closing(open_driver(replace(config, options={**config.options, **options}))) as device:
            device.call(["true"], 60)

    with device_of("ssh", tmp_path) as config:
        kind, key, *_ = (tmp_path / "user.pub").read_text().split()
        known = tmp_path / "known"
        known.write_text(f"[127.0.0.1]:{config.options['port']} {kind} {key}\n")
        with pytest.raises(DeviceLost, match="Host key verification failed"):
            use(known_hosts=str(known))
        with pytest.raises(DeviceLost, match="Permission denied"):
            use(identity=str(tmp_path / "host"))
        with pytest.raises(RuntimeFailure, match="no folder for the job can be made"):
            use(folder=str(known))


@pytest.mark.parametrize("kind", ["ssh", "adb"])
def test_a_device_that_takes_no_files_is_not_lost_but_one_that_restarted(
    kind: str, tmp_path: Path
) -> None:
    with device_of(kind, tmp_path) as config, closing(open_driver(config)) as device:
        folder = Path(device.call(["pwd"], 60).log.strip())
        (folder / "plain").write_text("no folder")
        with pytest.raises(RuntimeFailure) as caught:
            device.push({Path(__file__): "plain/file"})
        assert not isinstance(caught.value, DeviceLost)
        shutil.rmtree(folder)
        with pytest.raises(DeviceLost, match="may have restarted"):
            device.call(["true"], 60)
