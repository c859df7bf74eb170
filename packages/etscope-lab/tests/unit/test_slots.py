"""When a device that is out of reach is looked at again."""

from __future__ import annotations

import time

import pytest

from etscope_lab import engine as slots
from etscope_lab.engine import Slot
from etscope_lab.jobs.records import DeviceConfig


@pytest.fixture
def slot(monkeypatch: pytest.MonkeyPatch) -> Slot:
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)
    return Slot(DeviceConfig("phone", "adb"), {}, address="tcp://x", held=True)


def test_a_lost_device_is_looked_at_now_and_then_ever_later(slot: Slot) -> None:
    waits = []
    for _ in range(9):
        slot.lose("unplugged")
        waits.append(slot.check_at - 1000)
    assert waits == [0, 10, 20, 40, 80, 160, 300, 300, 300]
    assert (slot.ready, slot.message) == (False, "unplugged")
    slot.note_seen({}, {})
    assert slot.ready
    slot.lose("")
    assert slot.check_at == 1000
    for _ in range(30 * 24 * 12 + 9):  # a month
        slot.lose("unplugged")
    assert slot.check_at == 1000 + slots._CHECK_LATEST


def test_a_device_pauses_longer_each_time(slot: Slot) -> None:
    assert [slot.pause("full") for _ in range(8)] == [5, 10, 20, 40, 80, 160, 300, 300]
    assert slot.paused_until == 1300
    assert not slot.ready
    assert slot.record().message == "paused for 300 s: full"
