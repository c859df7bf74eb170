"""Fair shares of a lab's devices between projects."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping

from etscope_lab.config import ProjectConfig
from etscope_lab.jobs.records import Job

HALF_LIFE = 3600.0  # seconds; a project that worked all night does not wait all day
_NO_LIMITS = ProjectConfig()


class Shares:
    """Chooses whose job is next: of the project with the least device time for its share.

    The device time of ended jobs halves every hour, and a job at work counts as an average one.
    unsaved: device time by project since it was last written for all engines, which `load` reads.
    """

    def __init__(
        self,
        projects: Mapping[str, ProjectConfig],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._projects, self._clock = projects, clock
        self._used: dict[str, tuple[float, float]] = {}  # project: seconds, at that time
        self._mean = 1.0  # seconds of a job
        self.unsaved: Counter[str] = Counter()

    def matter(self, jobs: Iterable[Job]) -> bool:
        """Return False if the jobs are of one project, without limits: their order is right."""
        projects = {job.project for job in jobs}
        return len(projects) > 1 or not self._projects.keys().isdisjoint(projects)

    def note_use(self, project: str, seconds: float) -> None:
        """Add the device time of a job of the project."""
        self._used[project] = (self._use(project) + seconds, self._clock())
        self.unsaved[project] += seconds  # type: ignore[assignment]
        self._mean += 0.1 * (seconds - self._mean)

    def load(self, used: Mapping[str, float]) -> None:
        """Take what all engines used, by project, in the place of what is known."""
        self._used = {project: (seconds, self._clock()) for project, seconds in used.items()}

    def limit_of(self, project: str) -> tuple[str, int] | None:
        """The project and the number of its jobs that may be at work; None without a limit."""
        most = self._projects.get(project, _NO_LIMITS).max_running
        return None if most is None else (project, most)

    def order(self, jobs: Iterable[Job], at_work: Counter[str]) -> Iterator[Job]:
        """Yield jobs in their turn, those of one project in their order. at_work: jobs at work by
        project; the caller adds to it when it starts one. A project at its `max_running` waits."""
        waiting: dict[str, deque[Job]] = {}
        for job in jobs:
            waiting.setdefault(job.project, deque()).append(job)
        while waiting:
            project = min(waiting, key=lambda one: self._load(one, at_work[one]))
            limit = self._projects.get(project, _NO_LIMITS).max_running
            if limit is not None and at_work[project] >= limit:
                del waiting[project]
                continue
            yield waiting[project].popleft()
            if not waiting[project]:
                del waiting[project]

    def _load(self, project: str, at_work: int) -> float:
        share = self._projects.get(project, _NO_LIMITS).share
        return (self._use(project) + at_work * self._mean) / share

    def _use(self, project: str) -> float:
        seconds, at = self._used.get(project, (0.0, 0.0))
        return float(seconds * 0.5 ** ((self._clock() - at) / HALF_LIFE))
