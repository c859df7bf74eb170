"""TensorBoards that the lab serves, one a job: in this process, through WSGI.

A child of its own for each would be a port that anybody on this machine could read, without the
lab's tokens. TensorBoard reads only event files and documents that `_make` wrote. It loads once:
a finished job does not change.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from a2wsgi import WSGIMiddleware
from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

from etscope.optional import require

_THREADS = 4  # of one board
WANTED_BY = "the TensorBoard of a job"


@dataclass(slots=True)
class _Board:
    app: WSGIMiddleware
    used_at: float


class Boards:
    """The boards that are alive: `most` at a time, and none that was idle for `idle_seconds`."""

    def __init__(self, most: int = 8, idle_seconds: float = 900) -> None:
        self._most = most
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._alive: OrderedDict[str, _Board] = OrderedDict()
        self._timer: threading.Timer | None = None

    def __len__(self) -> int:
        return len(self._alive)

    def answer(self, job_id: str, logdir: Path) -> Response:
        """What the board of a job answers to the request that is being handled.

        Raises `MissingDependencyError` without TensorBoard.
        """
        with self._lock:
            board = self._alive.get(job_id)
            if board is None:
                board = _Board(WSGIMiddleware(_wsgi(job_id, logdir), _THREADS), 0.0)
                self._alive[job_id] = board
            board.used_at = time.monotonic()
            self._alive.move_to_end(job_id)
            self._sweep()
            self._set_timer()
        return _Handed(board.app)

    def close(self) -> None:
        with self._lock:
            self._most = 0
            self._sweep()
            if self._timer is not None:
                self._timer.cancel()

    def _sweep(self) -> None:
        """End the boards that were idle for long, and those that are too many."""
        oldest = time.monotonic() - self._idle_seconds
        for job_id, board in list(self._alive.items()):  # the one used last is at the end
            if len(self._alive) <= self._most and board.used_at >= oldest:
                break
            del self._alive[job_id]
            board.app.executor.shutdown(wait=False)

    def _set_timer(self) -> None:
        if self._timer is None and self._alive:
            self._timer = threading.Timer(self._idle_seconds, self._tick)
            self._timer.daemon = True
            self._timer.start()

    def _tick(self) -> None:
        with self._lock:
            self._timer = None
            self._sweep()
            self._set_timer()


class _Handed(Response):
    """An answer that another application gives."""

    def __init__(self, app: Any) -> None:
        super().__init__()
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


def _wsgi(job_id: str, logdir: Path) -> Any:
    """TensorBoard as a WSGI application: its graphs, its texts, and the report in a tab."""
    program = require("tensorboard.program", wanted_by=WANTED_BY)
    from tensorboard.plugins.core import core_plugin
    from tensorboard.plugins.graph import graphs_plugin
    from tensorboard.plugins.text import text_plugin

    from etscope.reporting import tensorboard_plugin as executorch_tab

    made: list[Any] = []
    board = program.TensorBoard(
        plugins=[
            core_plugin.CorePluginLoader,
            graphs_plugin.GraphsPlugin,
            text_plugin.TextPlugin,
            executorch_tab.Loader,
        ],
        server_class=lambda app, flags: _Unserved(app, made),
    )
    board.configure(
        ["tensorboard", "--logdir", str(logdir)],
        path_prefix=f"/jobs/{job_id}/tensorboard",
        load_fast="false",
        reload_interval=0,
        reload_task="blocking",
        window_title=f"etscope lab: {job_id}",
    )
    board.launch()
    return made[0]


class _Unserved:
    """What TensorBoard takes for its server: keeps the application, and serves nothing."""

    def __init__(self, app: Any, made: list[Any]) -> None:
        made.append(app)

    def serve_forever(self) -> None:
        pass

    def get_url(self) -> str:
        return ""
