"""What a calibration run does after each of its batches."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from builders import PIN, a_batch
from millrace_api.model.deployment import Algorithm
from millrace_api.model.plan import Plan
from millrace_jobs.calibration.conductor import Conductor
from millrace_jobs.calibration.design import DesignedPlan
from millrace_jobs.calibration.turns import BatchTurn
from millrace_jobs.pipeline.progress import BatchReport

PLANS = [DesignedPlan(2, 4, 2), DesignedPlan(1, 2, 1)]


@dataclass
class Job:
    """A job whose batches take a time and one for each record, on a clock of its own."""

    each: float = 1e-5
    fixed: float = 0.4
    available: int | None = None
    readable: float = 1.0
    now: float = 0.0
    rows: list[int] = field(default_factory=list)
    cores: list[int] = field(default_factory=list)
    turns: list[BatchTurn] = field(default_factory=list)
    ended: bool = False
    epoch: int = 1
    plan: Plan | None = None

    def __post_init__(self) -> None:
        base = Plan(epoch=1, algorithm=Algorithm.PKG, replicas=3, parallelism=6)
        self.conductor = Conductor(
            PLANS,
            base,
            60.0,
            leave=self.cores.append,
            give=self.turns.append,
            say=lambda text: None,
            end=self.end,
            clock=lambda: self.now,
            first_time=1_000_000,
            delay=5_000_000,
        )
        self.conductor.begin()

    def end(self) -> None:
        self.ended = True

    def next_batch(self) -> BatchReport:
        """Follow the plan, as the loop does, and run the batch of the last turn."""
        for _ in range(2):
            self.plan = self.conductor.current() or self.plan
        assert self.plan is not None
        taken = min(self.turns[-1].rows, self.available or 10**9)
        rows = max(round(taken * self.readable), 1)
        seconds = self.fixed + self.each * rows
        self.now += seconds
        self.rows.append(rows)
        pin = replace(PIN, epoch=self.plan.epoch, workers=self.plan.parallelism, replicas=self.plan.replicas)
        report = a_batch(batch=len(self.rows), rows=rows, seconds=seconds, pin=pin, latest_event=int(self.now * 1e6))
        report = replace(report, taken=taken)
        self.conductor.batch(report)
        return report

    def run(self) -> Conductor:
        for _ in range(1000):
            if self.ended:
                return self.conductor
            self.next_batch()
        raise AssertionError("the run does not end")


def test_the_run_ends_with_its_time_and_has_seen_every_plan() -> None:
    job = Job()
    found = job.run()
    assert 60 <= found.spent <= 65
    assert {(b.cores, b.parallelism, b.replicas) for b in found.finished} == {(2, 4, 2), (1, 2, 1)}
    assert len({b.rows for b in found.finished if b.cores == 2}) == 3
    assert set(job.cores) == {1, 2}


def test_large_batches_take_about_their_part_of_the_time() -> None:
    found = Job().run()
    large = max(found.finished, key=lambda batch: batch.rows)
    assert 0.7 * 60 / 36 <= large.seconds <= 1.5 * 60 / 36


def test_another_round_has_larger_batches_if_the_machine_was_busy_at_first() -> None:
    job = Job(each=1e-3)
    while job.conductor.finished == []:
        job.next_batch()
    job.each = 1e-5
    job.run()
    assert max(job.rows[-8:]) > 4 * max(job.rows[:8])


def test_it_takes_somewhat_longer_if_a_plan_was_not_measured_in_time() -> None:
    job = Job(each=0.02)
    found = job.run()
    assert {batch.cores for batch in found.finished} == {1, 2}
    assert found.spent <= 2 * 60 + 20


def test_slow_code_gets_few_records() -> None:
    job = Job(each=0.02)
    found = job.run()
    assert max(job.rows) <= 1000
    assert len(found.finished) >= 6


def test_a_source_with_few_records_is_asked_for_no_more() -> None:
    job = Job(available=3000)
    found = job.run()
    assert max(batch.rows for batch in found.finished) == 3000
    assert len(found.finished) >= 12


def test_batches_grow_although_few_of_the_offsets_have_a_record() -> None:
    found = Job(readable=0.1).run()
    large = max(found.finished, key=lambda batch: batch.rows)
    assert large.rows > 1000
    assert large.seconds >= 0.5 * 60 / 36


def test_the_turn_of_a_new_plan_waits_until_the_sources_know_the_plan() -> None:
    job = Job()
    while not job.conductor.finished:
        job.next_batch()
    while job.conductor._running is None or job.conductor._running.batches:  # until the next plan is chosen
        job.next_batch()
    before = len(job.turns)
    plan = job.conductor.current()
    assert plan is not None
    assert len(job.turns) == before
    assert job.conductor.current() is None
    assert len(job.turns) == before + 1


def test_a_batch_that_was_planned_under_the_plan_before_does_not_count() -> None:
    job = Job()
    while not job.conductor.finished:
        job.next_batch()
    counted = len(job.conductor.finished)
    job.conductor.batch(a_batch(rows=10, pin=replace(PIN, epoch=1)))
    assert len(job.conductor.finished) == counted


def test_records_that_are_read_again_follow_the_last_ones() -> None:
    job = Job()
    report = job.next_batch()
    assert report.latest_event is not None
    assert job.turns[-1].shift == report.latest_event - 1_000_000 + 5_000_000 + 1_000_000


def test_the_algorithm_of_most_batches_counts() -> None:
    job = Job()
    found = job.run()
    found.algorithms[0] = "native"
    assert found.algorithm == "pkg"
    assert len(found.counted) == len(found.finished) - 1


def test_files_are_counted_by_the_records_of_the_last_ones() -> None:
    job = Job()
    job.conductor.current()
    job.conductor.batch(a_batch(rows=1000, seconds=0.4))
    assert job.turns[-1].rows == 8000
    assert job.turns[-1].units == 8


def test_batches_grow_on_a_machine_that_is_slow_whatever_they_have() -> None:
    job = Job(fixed=6.0)
    found = job.run()
    assert max(batch.rows for batch in found.finished) >= 1000


def test_a_run_whose_records_are_all_rejected_ends() -> None:
    job = Job()
    for number in range(100):
        job.now += 0.5
        job.conductor.batch(a_batch(batch=number, rows=0, seconds=0.5, rejected=3))
        if job.ended:
            break
    assert 20 <= job.now < 25
    assert job.conductor.rejected == 6 * job.now


def test_one_empty_batch_that_takes_long_does_not_end_the_run() -> None:
    job = Job()
    job.next_batch()
    job.now += 40
    job.conductor.batch(a_batch(batch=2, rows=0, seconds=40.0))
    assert not job.ended


def test_a_run_whose_source_has_no_more_ends() -> None:
    job = Job()
    for _ in range(4):
        job.next_batch()
    ended_at = job.now
    while not job.ended and job.now < ended_at + 60:
        job.now += 0.1
        job.conductor.idle()
    assert 19 < job.now - ended_at < 22


def test_batches_of_tables_alone_neither_count_nor_end_the_run() -> None:
    job = Job()
    job.conductor.streams = {"clicks"}
    job.conductor.current()
    for number in range(10):
        job.now += 5
        of_table = a_batch(batch=number, rows=500_000, seconds=5.0, taken_from={"users": 500_000})
        job.conductor.batch(of_table)
    assert not job.ended
    assert (job.conductor.spent, job.conductor.warm_up, len(job.turns)) == (0, 0, 1)
    job.conductor.batch(a_batch(rows=100, seconds=0.4, taken_from={"clicks": 100, "users": 3}))
    assert job.conductor.warm_up == 1
    assert job.turns[-1].rows == 800
