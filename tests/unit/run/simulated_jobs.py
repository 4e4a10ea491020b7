"""Simulated jobs, and how long they take to work off what waits if their batches are admitted one way or another."""

import json
import random
import statistics
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from millrace_jobs.run.admission import MIN_LIMIT, MIN_RECORDS_SHARE, Admission, FinishedBatch

INTERVAL = 2.0
TARGET = 0.9
FIRST = 50_000
PLENTY = 1 << 40
PLAN = ("pkg", 2, 8)
RECORDED = Path(__file__).parents[3] / "bench" / "recorded" / "scaling_points.json"


@dataclass(frozen=True)
class Change:
    """After so many records, the busiest worker gets another share of them, and the plan may be another one."""

    after: int
    hot: float
    plan: tuple[str, int, int]


@dataclass
class Job:
    """A batch takes ``fixed`` seconds, its tasks ``task_fixed``, ``search`` and ``per_record`` for each record.

    ``odd`` is how much longer a batch takes, by number; ``cold`` seconds come with the first one. Of ``workers``, one
    gets the share ``hot`` of the records, and a batch takes as long as that one. The clocks of its tasks show the share
    ``clocked`` of the seconds for records; None without clocks.
    """

    fixed: float
    per_record: float
    task_fixed: float = 0.0
    noise: float = 0.0
    cold: float = 5.0
    odd: dict[int, float] = field(default_factory=dict)
    seed: int = 1
    workers: int = 8
    hot: float = 1 / 8
    plan: tuple[str, int, int] = PLAN
    search: float = 0.0
    clocked: float | None = None
    changes: list[Change] = field(default_factory=list)
    batches: int = 0
    done: int = 0

    def __post_init__(self):
        self._chance = random.Random(self.seed)

    @property
    def cost(self):
        """Seconds of a record."""
        return self.per_record * self.workers * self.hot

    def run(self, rows, arrived=0):
        """Process a batch."""
        self.batches += 1
        slower = self._chance.lognormvariate(0, self.noise) * self.odd.get(self.batches, 1)
        cold = self.cold if self.batches == 1 else 0.0
        plan = self.plan
        tasks = self._work_off(rows)
        on_records = None if self.clocked is None else self.clocked * (tasks - self.task_fixed) * slower + cold / 4
        work = tasks * slower * self._chance.lognormvariate(0, self.noise) + cold / 2
        search = self.search and self.search * self._chance.lognormvariate(0, self.noise)
        seconds = self.fixed * slower + work + search + cold / 2
        return FinishedBatch(rows, seconds, work + search, plan, arrived, search, on_records)

    def _work_off(self, rows):
        """Seconds of the tasks for the next records, of which later ones may cost more or less than the first."""
        seconds = self.task_fixed
        while self.changes and self.done + rows >= self.changes[0].after:
            change = self.changes.pop(0)
            before = change.after - self.done
            seconds += self.cost * before
            rows -= before
            self.done, self.hot, self.plan = change.after, change.hot, change.plan
        self.done += rows
        return seconds + self.cost * rows

    def work(self, rows):
        """Seconds of the tasks, without noise."""
        return self.task_fixed + self.search + self.cost * rows

    def seconds(self, rows):
        """Seconds of a batch, without noise."""
        return self.fixed + self.work(rows)


def an_admission(interval=INTERVAL, first=FIRST):
    return Admission(TARGET * interval, interval, first)


def catch_up(admission, job, batches=10**6, waiting=PLENTY):
    """Run batches until nothing waits; rows and seconds of each."""
    seen = []
    while waiting and len(seen) < batches:
        rows = min(admission.shares({"stream": waiting}, PLENTY)["stream"], waiting)
        waiting -= rows
        batch = job.run(rows)
        admission.finished(batch)
        seen.append((rows, batch.seconds))
    return seen


def usual(batches):
    """Median of the seconds of batches: now and then one is of twice the size, to learn from."""
    return statistics.median(seconds for _, seconds in batches)


def best_batch(job, interval):
    """Records of a batch that is as long as it should be, for one who knows the costs."""
    fixed = job.seconds(0)
    room = max(TARGET * interval - fixed, fixed * MIN_RECORDS_SHARE / (1 - MIN_RECORDS_SHARE))
    return max(MIN_LIMIT, int(room / job.cost))


class Knowing:
    """Admits what ``best_batch`` says, whatever the costs are just now."""

    def __init__(self, job, interval):
        self._job, self._interval = job, interval

    def shares(self, waiting, most):
        return dict.fromkeys(waiting, best_batch(self._job, self._interval))

    def finished(self, batch):
        """Nothing is left to learn."""


def total(batches):
    return sum(seconds for _, seconds in batches)


def knowing(job, interval, waiting):
    """Seconds that one takes for what waits who knows the costs."""
    return total(catch_up(Knowing(job, interval), job, waiting=waiting))


class RecordedJob(Job):
    """Takes as long for a batch as real ones took, with their scatter; between their sizes on a straight line."""

    def __init__(self, points, seed):
        super().__init__(0.0, 0.0, seed=seed)
        self._sizes = sorted((point["rows"], point["seconds"]) for point in points)
        self._scatter = [seconds / point["seconds"] for point in points for seconds in point["batches"]]
        self.per_record = (self._sizes[-1][1] - self._sizes[0][1]) / (self._sizes[-1][0] - self._sizes[0][0])

    def run(self, rows, arrived=0):
        self.batches += 1
        cold = self.cold if self.batches == 1 else 0.0
        seconds = self.seconds(rows) * self._chance.choice(self._scatter) + cold
        return FinishedBatch(rows, seconds, seconds - 0.1, PLAN, arrived)

    def seconds(self, rows):
        """Beyond the largest size recorded, on the line through the last two."""
        (low, below), (high, above) = next(
            (pair for pair in pairwise(self._sizes) if rows <= pair[1][0]), (self._sizes[-2], self._sizes[-1])
        )
        return below + (rows - low) * (above - below) / (high - low)


def recorded_jobs():
    """The points of one query and plan, where they are of three sizes, and more records take longer."""
    groups = defaultdict(list)
    for point in json.loads(RECORDED.read_text(encoding="utf-8")):
        groups[point["job"], point["cores"], point["parallelism"], point["skew"]].append(point)
    return {name: points for name, points in groups.items() if _tell(points)}


def _tell(points):
    seconds = [point["seconds"] for point in sorted(points, key=lambda point: point["rows"])]
    return len({point["rows"] for point in points}) >= 3 and seconds == sorted(seconds)
