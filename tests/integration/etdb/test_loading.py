"""The reference is loaded in the background: the prompt stays usable, and a wait can be ended."""

from __future__ import annotations

import threading

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch.exir")

from etscope.etdb import Session  # noqa: E402
from etscope.etdb.targets import reference  # noqa: E402
from etscope.etdb.targets.reference import Background, ReferenceProgram  # noqa: E402
from tests.support.etdb.ctrl_c import Waited, press  # noqa: E402
from tests.support.etdb.server import SECONDS  # noqa: E402
from tests.support.etdb.sessions import said, session  # noqa: E402
from tests.support.waiting import until  # noqa: E402


def test_ctrl_c_ends_the_wait_and_not_the_work(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reference, "_SILENT_SECONDS", 0)
    release = threading.Event()

    def work() -> int:
        release.wait()
        return 7

    background = Background(work)
    over = background._over = Waited()
    pressing = threading.Thread(target=lambda: over.is_awaited.wait(SECONDS) and press())
    pressing.start()
    with pytest.raises(KeyboardInterrupt):
        background.result()
    pressing.join()
    assert not background.is_over and Background.is_any_running()
    release.set()
    assert background.result() == 7
    assert "Ctrl-C ends the wait" in capfd.readouterr().err


def test_another_thread_can_end_the_wait() -> None:
    release = threading.Event()
    background = Background(release.wait)
    over = background._over = Waited()
    cancelling = threading.Thread(
        target=lambda: over.is_awaited.wait(SECONDS) and Background.cancel_waits()
    )
    cancelling.start()
    with pytest.raises(KeyboardInterrupt):
        background.result()
    cancelling.join()
    release.set()
    assert background.result()


def test_an_error_is_raised_where_it_is_waited_for() -> None:
    def work() -> None:
        raise ValueError("no")

    background = Background(work)
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            background.result()


def loading(one: Session) -> threading.Event:
    """Let the session's reference be loaded when the event is set."""
    release, debugger = threading.Event(), one.debugger
    linked, record = debugger.edge("forward"), debugger.record
    assert record is not None

    def load() -> ReferenceProgram:
        release.wait()
        return ReferenceProgram(record, linked)

    debugger._program = linked, Background(load)
    return release


def test_print_does_not_wait_for_a_reference_that_is_loaded_ahead() -> None:
    one = session("cnn_portable")
    said(one, "start")
    release = loading(one)
    one.debugger.load_ahead()
    assert "reference: (being loaded" in said(one, "print $")
    assert "loaded" not in said(one, "print $.shape")
    release.set()
    until(lambda: not one.debugger.is_loading)
    assert said(one, "print $.shape").endswith("the reference is loaded\n")
    assert "gap: SQNR" in said(one, "print $")


def test_a_script_waits_for_the_reference() -> None:
    one = session("cnn_portable")
    said(one, "start")
    threading.Timer(0.3, loading(one).set).start()
    assert "gap: SQNR" in said(one, "print $")
