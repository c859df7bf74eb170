"""Devices that cannot be reached, or go away."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from etscope.errors import DeviceLost, RuntimeFailure
from etscope.lab.devices.driver import Driver, open_driver
from etscope.lab.jobs.records import DeviceConfig
from tests.support import adb_device, sshd
from tests.support.lab_devices import device_of, written


@contextmanager
def _unpluggable(kind: str, folder: Path) -> Iterator[tuple[DeviceConfig, Callable[[], None]]]:
    """A device, and what takes it away."""
    if kind == "ssh":
        if sshd.missing():
            pytest.skip(sshd.missing() or "")
        with sshd.serving(folder) as server:
            yield DeviceConfig("board", "ssh", server.options), server.stop
    else:
        if adb_device.missing():
            pytest.skip(adb_device.missing() or "")
        with adb_device.plugged_in(folder) as (device, options):
            yield DeviceConfig("phone", "adb", options), device.unplug


@pytest.fixture(params=["ssh", "adb"])
def unpluggable(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[DeviceConfig, Callable[[], None]]]:
    with _unpluggable(request.param, tmp_path) as found:
        yield found


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


def _calls(device: Driver, folder: Path) -> list[Callable[[], object]]:
    return [
        lambda: device.read(["/proc/loadavg"]),
        lambda: device.call(["true"], 60),
        lambda: device.push({Path(__file__): "file"}),
        lambda: device.pull(["file"], folder),
    ]


def test_a_device_that_is_not_there(
    unpluggable: tuple[DeviceConfig, Callable[[], None]],
) -> None:
    config, unplug = unpluggable
    unplug()
    with pytest.raises(DeviceLost, match=f"{config.name} is out of reach: "):
        open_driver(config)


def test_another_machine_in_its_place(tmp_path: Path) -> None:
    with device_of("ssh", tmp_path) as config:
        known = tmp_path / "known_hosts"
        port = config.options["port"]
        other = (tmp_path / "user.pub").read_text().split()
        known.write_text(f"[127.0.0.1]:{port} {other[0]} {other[1]}\n")
        with pytest.raises(DeviceLost, match="Host key verification failed"):
            open_driver(config)


def test_a_key_that_is_not_taken(tmp_path: Path) -> None:
    with device_of("ssh", tmp_path) as config:
        options = {**config.options, "identity": str(tmp_path / "host")}
        with pytest.raises(DeviceLost, match="Permission denied"):
            open_driver(replace(config, options=options))


@pytest.mark.parametrize("kind", ["ssh", "adb"])
def test_a_device_that_restarted_has_no_folder(kind: str, tmp_path: Path) -> None:
    with device_of(kind, tmp_path) as config, closing(open_driver(config)) as device:
        shutil.rmtree(device.call(["pwd"], 60).log.strip())
        with pytest.raises(DeviceLost, match="may have restarted"):
            device.call(["true"], 60)


@pytest.mark.parametrize("kind", ["ssh", "adb"])
def test_a_device_that_takes_no_files_is_not_lost(kind: str, tmp_path: Path) -> None:
    with device_of(kind, tmp_path) as config, closing(open_driver(config)) as device:
        folder = Path(device.call(["pwd"], 60).log.strip())
        (folder / "plain").write_text("no folder")
        with pytest.raises(RuntimeFailure) as caught:
            device.push({Path(__file__): "plain/file"})
        assert not isinstance(caught.value, DeviceLost)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    with device_of("ssh", tmp_path) as config:
        (tmp_path / "device").write_text("a file in its place")
        with (
            closing(open_driver(config)) as device,
            pytest.raises(RuntimeFailure, match="no folder for the job can be made"),
        ):
            device.call(["true"], 60)
