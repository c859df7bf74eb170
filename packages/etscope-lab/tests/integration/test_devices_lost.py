"""Devices that cannot be reached, or go away."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from etscope.errors import DeviceLost, RuntimeFailure, UsageError
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


# -- adb's own faults


def test_a_phone_whose_user_has_not_allowed_this_computer(tmp_path: Path) -> None:
    _needs(adb_device)
    with (
        adb_device.plugged_in(tmp_path, is_trusted=False) as (_, options),
        pytest.raises(DeviceLost, match="unauthorized"),
    ):
        open_driver(DeviceConfig("phone", "adb", options))


def test_several_phones_need_a_serial(tmp_path: Path) -> None:
    _needs(adb_device)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with adb_device.plugged_in(tmp_path / "one") as (_, options):
        second = adb_device.AdbDevice(tmp_path / "two", {})
        both = {name: value for name, value in options.items() if name != "serial"}
        with (
            closing(open_driver(DeviceConfig("one", "adb", options))),
            closing(open_driver(DeviceConfig("two", "adb", {**options, "serial": second.serial}))),
            pytest.raises(UsageError, match="more than one device"),
        ):
            open_driver(DeviceConfig("any", "adb", both))
        second.unplug()


def test_the_adb_server_ends_in_mid_command(tmp_path: Path) -> None:
    _needs(adb_device)
    begun = tmp_path / "begun"
    with adb_device.plugged_in(tmp_path) as (_, options):
        config = DeviceConfig("phone", "adb", options)
        end = ["adb", "-P", str(options["server_port"]), "kill-server"]

        def when_begun() -> None:
            written(begun)
            subprocess.run(end, capture_output=True, check=False)

        with closing(open_driver(config)) as device:
            waiting = threading.Thread(target=when_begun)
            waiting.start()
            with pytest.raises(DeviceLost):
                device.call(["sh", "-c", 'echo x >"$1"; exec sleep 1000', "sh", str(begun)], 300)
            waiting.join()
        with closing(open_driver(config)) as device:  # the client starts another server
            assert device.call(["echo", "again"], 60).log.strip() == "again"
            assert list((tmp_path / "data").iterdir()) != []


def test_a_phone_that_goes_away_during_a_push(tmp_path: Path) -> None:
    _needs(adb_device)
    (tmp_path / "large").write_bytes(bytes(4 << 20))
    with (
        adb_device.plugged_in(tmp_path) as (phone, options),
        closing(open_driver(DeviceConfig("phone", "adb", options))) as device,
    ):
        device.call(["true"], 60)
        phone.unplugged_at = 1 << 20
        with pytest.raises(DeviceLost, match="phone went away"):
            device.push({tmp_path / "large": "large"})


# -- a full disk


@pytest.mark.parametrize("kind", ["ssh", "adb"])
def test_a_device_with_a_full_disk(kind: str, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    line = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)]
    if subprocess.run(line, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root can make a small disk")
    try:
        (tmp_path / "large").write_bytes(bytes(1 << 20))
        with device_of(kind, tmp_path) as config:
            options = {**config.options, "folder": str(small)}
            with (
                closing(open_driver(replace(config, options=options))) as device,
                pytest.raises(DeviceLost, match="its disk is full"),
            ):
                device.push({tmp_path / "large": "large"})
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", "-l", str(small)], check=False)


def _needs(kind: ModuleType) -> None:
    if why := kind.missing():
        pytest.skip(why)
