"""A job that records its batches, and the answers that its metrics would give: the ground truth for observations."""

from dataclasses import dataclass, field

import pytest

from millrace_operator.scaling.answers import AnswerReader
from millrace_operator.scaling.observation import Answer, NoAnswer

EPOCH = 1


@dataclass(frozen=True)
class Batch:
    start: float
    end: float
    rows: float
    epoch: int
    executors: int
    parallelism: int


@dataclass
class Job:
    """A job that starts a batch once per interval, or when the one before has ended. Each takes all waiting records."""

    interval: float = 2.0
    rate: float = 1000.0
    seconds: float = 0.8
    epoch: int = 1
    executors: int = 2
    parallelism: int = 4
    replicas: int = 3
    dedicated: bool = False
    batches: list[Batch] = field(default_factory=list)
    planned: float = 0.0
    answers: list[Answer] = field(default_factory=list)

    def run(self, until, seconds=None, every=5.0):
        """Run batches of ``seconds`` each until a time, with an answer every few seconds."""
        seconds = self.seconds if seconds is None else seconds
        while (start := self.next_start) <= until:
            rows = self.rate * (start - self.planned)
            end = start + (seconds(len(self.batches)) if callable(seconds) else seconds)
            self.planned = start
            self.batches.append(Batch(start, end, rows, self.epoch, self.executors, self.parallelism))
        time = self.answers[-1].time + every if self.answers else every
        while time <= until:
            self.answers.append(self.answer(time))
            time += every
        return self

    @property
    def next_start(self):
        return max(self.batches[-1].end if self.batches else 0.0, self.planned + self.interval)

    def answer(self, time):
        ended = [batch for batch in self.batches if batch.end <= time]
        if not ended:
            return Answer(time, batches_total=0.0, rows_total=0.0, processing_seconds_total=0.0)
        rows = sum(batch.rows for batch in ended)
        return Answer(
            time=time,
            batches_total=float(len(ended)),
            rows_total=rows,
            processing_seconds_total=sum(batch.end - batch.start for batch in ended),
            route_tasks_total=3.0 * len(ended),
            route_seconds_total=rows * 1e-6,
            longest_slice_seconds_total=rows * 5e-7,
            latest_offset_seconds_total=0.01 * len(ended),
            get_batch_seconds_total=0.001 * len(ended),
            wal_commit_seconds_total=0.02 * len(ended),
            commit_seconds_total=0.02 * len(ended),
            planning_seconds_total=0.03 * len(ended),
            sink_seconds_total=0.02 * len(ended),
            combine_tasks_total=4.0 * len(ended),
            combine_seconds_total=rows * 2e-6,
            merge_seconds_total=rows * 3e-6,
            partials_total=rows / 10,
            input_bytes_total=rows * 100,
            routed_total=rows * 0.9,
            route_bytes_total=rows * 60,
            combine_bytes_total=rows * 5,
            updates_total=rows / 20,
            busy_core_seconds_total=rows * 1e-5 + time / 100,
            dedicated_busy_seconds_total=0.3 * time if self.dedicated else None,
            dedicated_paused_seconds_total=0.6 * time if self.dedicated else None,
            dedicated_lag_rows=0.0 if self.dedicated else None,
            interval_seconds=self.interval,
            lag_rows=0.0,
            keys=100.0,
            imbalance=0.25,
            epoch=float(ended[-1].epoch),
            parallelism=float(ended[-1].parallelism),
            replicas=float(self.replicas),
            executors=float(self.executors),
        )

    def between(self, since, until):
        """Return the batches that ended after ``since`` and until ``until``."""
        return [batch for batch in self.batches if since < batch.end <= until]


def read(answers, reading=None, delay=0.5, epoch=EPOCH):
    reading = reading or AnswerReader()
    return [reading.step(answer, answer.time + delay, epoch) for answer in answers]


def reasons(found):
    return [one.reason if isinstance(one, NoAnswer) else None for one in found]


def read_with(change, at=5, answers=None):
    """Return the observations of a steady job with the answer number ``at`` replaced."""
    answers = answers or Job().run(60).answers
    return read([*answers[:at], change(answers[at]), *answers[at + 1 :]])


def check_truth(job, seen, arrival=1e-6):
    """Check the observation against the job's record. The arrival rate may differ by the share ``arrival``."""
    batches = job.between(seen.since, seen.until)
    assert seen.batches == len(batches)
    assert {batch.epoch for batch in batches} == {seen.epoch}
    assert {batch.executors for batch in batches} == {seen.plan.executors}
    assert seen.rows == pytest.approx(sum(batch.rows for batch in batches) / len(batches))
    assert seen.seconds == pytest.approx(sum(batch.end - batch.start for batch in batches) / len(batches))
    assert seen.arrival == pytest.approx(job.rate, rel=arrival)
