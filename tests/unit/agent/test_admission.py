"""Batches of a simulated job: how many records they are given, and how long they take."""

import itertools
import random
from dataclasses import dataclass, field

import pytest

from millrace_jobs.agent.admission import FIRST, FLOOR, STEP, Admission

INTERVAL = 2.0
GOAL = 0.9 * INTERVAL
PLAN = ("pkg", 2, 8)


@dataclass
class Job:
    """Takes a fixed time per batch and a time per record; ``odd`` is how much longer a batch takes, by number."""

    fixed: float
    per_record: float
    noise: float = 0.0
    odd: dict[int, float] = field(default_factory=dict)
    seed: int = 1

    def __post_init__(self):
        self._chance = random.Random(self.seed)
        self.batches = 0

    def seconds(self, rows):
        self.batches += 1
        usual = (self.fixed + self.per_record * rows) * self._chance.lognormvariate(0, self.noise)
        return usual * self.odd.get(self.batches, 1)


def catch_up(admission, job, batches, plan=PLAN, waiting=10**12):
    """Run batches over a backlog; records and seconds of each."""
    seen = []
    for _ in range(batches):
        rows = min(admission.limit, waiting)
        waiting -= rows
        seconds = job.seconds(rows)
        admission.finished(rows, seconds, plan)
        seen.append((rows, seconds))
    return seen


@pytest.mark.parametrize("fixed", [0.0, 0.1, 0.6, 1.2])
@pytest.mark.parametrize("capacity", [2_000, 50_000, 2_000_000])
def test_batches_come_near_the_goal_and_stay_there(fixed, capacity):
    job = Job(fixed, 1 / capacity)
    seen = catch_up(Admission(GOAL, INTERVAL), job, 60)
    grown = [(a, b) for (a, _), (b, _) in itertools.pairwise(seen) if b > a]
    assert all(b <= STEP * a for a, b in grown)
    assert max(seconds for _, seconds in seen) <= max(1.1 * INTERVAL, fixed + FIRST / capacity)
    assert all(seconds == pytest.approx(GOAL, rel=0.05) for _, seconds in seen[-20:])


def test_the_first_batches_double_until_it_is_known_how_long_they_take():
    seen = catch_up(Admission(GOAL, INTERVAL), Job(0.5, 1e-6), 12)
    assert [rows for rows, _ in seen[:8]] == [FIRST, *(FIRST * 2**n for n in range(7))]
    assert seen[-1][1] == pytest.approx(GOAL, rel=0.05)


@pytest.mark.parametrize("seed", range(20))
def test_noise_does_not_drive_batches_far_beyond_the_interval(seed):
    job = Job(0.4, 1e-5, noise=0.15, seed=seed)
    admission = Admission(GOAL, INTERVAL)
    catch_up(admission, job, 15)
    sizes = [rows for rows, _ in catch_up(admission, job, 100)]
    typical = [job.fixed + job.per_record * rows for rows in sizes]
    assert max(typical) < 1.5 * GOAL
    assert min(typical) > 0.5 * GOAL
    assert sum(typical) / len(typical) == pytest.approx(GOAL, rel=0.15)


def test_an_odd_batch_changes_little():
    job = Job(0.4, 1e-5, odd={30: 20.0})
    seen = catch_up(Admission(GOAL, INTERVAL), job, 60)
    assert seen[29][1] > 10 * GOAL
    assert all(seconds == pytest.approx(GOAL, rel=0.1) for _, seconds in seen[30:])


def test_two_odd_batches_in_a_row_cost_no_more_than_a_few_small_ones():
    seen = catch_up(Admission(GOAL, INTERVAL), Job(0.4, 1e-5, odd={30: 20.0, 31: 20.0}), 60)
    assert min(rows for rows, _ in seen[29:]) >= seen[28][0] / STEP**3
    assert seen[45][1] == pytest.approx(GOAL, rel=0.1)


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_capacity_that_changes_is_followed(factor):
    job = Job(0.4, 1e-5)
    admission = Admission(GOAL, INTERVAL)
    catch_up(admission, job, 40)
    job.per_record /= factor
    seen = catch_up(admission, job, 30)
    assert all(seconds == pytest.approx(GOAL, rel=0.1) for _, seconds in seen[6:])
    assert sum(seconds > 1.2 * GOAL for _, seconds in seen) <= 3


def test_where_the_fixed_time_is_more_than_the_interval_the_job_still_gets_on():
    job = Job(fixed=3.0, per_record=1e-5)
    seen = catch_up(Admission(GOAL, INTERVAL), job, 60)
    rows, seconds = seen[-1]
    assert seconds < 2 * job.fixed
    assert rows / seconds > 0.3 / job.per_record


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("noise", "share"), [(0.1, 0.1), (0.3, 0.05)], ids=["usual", "a crowded machine"])
def test_that_also_holds_with_noise(noise, share, seed):
    job = Job(fixed=3.0, per_record=1e-5, noise=noise, seed=seed)
    seen = catch_up(Admission(GOAL, INTERVAL), job, 150)
    rows, seconds = (sum(column) for column in zip(*seen[-50:], strict=True))
    assert rows / seconds > share / job.per_record
    assert seconds / 50 < 4 * job.fixed


def test_after_slow_batches_at_the_beginning_it_grows_as_fast_as_ever():
    seen = catch_up(Admission(GOAL, INTERVAL), Job(0.3, 1e-6, odd={3: 5.0, 4: 4.0}), 16)
    assert seen[-1][1] == pytest.approx(GOAL, rel=0.05)


def test_the_limit_never_goes_below_its_floor():
    admission = Admission(GOAL, INTERVAL)
    catch_up(admission, Job(0.0, 10.0), 30)
    assert admission.limit == FLOOR


def test_small_batches_of_a_live_stream_leave_the_limit_alone():
    admission = Admission(GOAL, INTERVAL)
    job = Job(0.4, 1e-5, noise=0.3)
    catch_up(admission, job, 40)
    known = admission.limit
    for _ in range(200):
        admission.finished(50, min(job.seconds(50), GOAL), PLAN)
    assert admission.limit == known


def test_after_a_change_of_plan_it_goes_on_from_the_limit_it_had_and_learns_anew():
    admission = Admission(GOAL, INTERVAL)
    catch_up(admission, Job(0.4, 1e-5), 40)
    known = admission.limit
    slower = Job(0.4, 4e-5)
    seen = catch_up(admission, slower, 12, plan=("hash", 2, 2))
    assert seen[0][0] == known
    assert seen[1][0] == seen[2][0] == known  # the first batches under a plan tell nothing: its workers are new
    assert seen[3][0] == pytest.approx(known / STEP, rel=0.01)
    assert seen[-1][1] == pytest.approx(GOAL, rel=0.1)


@pytest.mark.parametrize(("rows", "seconds"), [(0, 1.0), (500, 0.0), (500, -3600.0)])
def test_batches_that_tell_nothing_are_passed_over(rows, seconds):
    admission, other = Admission(GOAL, INTERVAL), Admission(GOAL, INTERVAL)
    catch_up(admission, Job(0.4, 1e-5), 20)
    catch_up(other, Job(0.4, 1e-5), 20)
    admission.finished(rows, seconds, PLAN)
    assert admission.limit == other.limit
    assert catch_up(admission, Job(0.4, 1e-5), 5) == catch_up(other, Job(0.4, 1e-5), 5)


def test_a_first_batch_that_takes_long_is_not_taken_for_what_is():
    seen = catch_up(Admission(GOAL, INTERVAL), Job(0.4, 1e-5, odd={1: 30.0}), 20)
    assert [rows for rows, _ in seen[:4]] == [FIRST, FIRST, 2 * FIRST, 4 * FIRST]


def test_sources_share_the_limit_by_what_waits_and_none_is_left_out():
    admission = Admission(GOAL, INTERVAL)
    assert admission.shares({"a": 7}) == {"a": FIRST}
    assert admission.shares({"a": 0, "b": 0}) == {"a": FIRST // 2, "b": FIRST // 2}
    shares = admission.shares({"big": 3_000_000, "small": 1_000_000, "none": 0})
    assert sum(shares.values()) <= FIRST
    assert shares["none"] == int(FIRST / 12)
    assert shares["big"] - shares["none"] == pytest.approx(3 * (shares["small"] - shares["none"]), abs=3)


def live(admission, job, arriving, batches, waiting=0):
    """Run batches of a stream that brings so many records an interval; what is left behind each batch, and its seconds."""
    seen, left = [], waiting
    for _ in range(batches):
        rows = min(left + arriving, admission.shares({"stream": left})["stream"])
        left += arriving - rows
        seconds = job.seconds(rows)
        admission.finished(rows, seconds, PLAN)
        seen.append((left, seconds))
    return seen


def test_a_load_that_the_job_can_just_do_makes_no_backlog():
    admission, job = Admission(GOAL, INTERVAL), Job(0.4, 1e-5)
    catch_up(admission, job, 40)
    seen = live(admission, job, arriving=150_000, batches=200)  # 1.9 s, where the goal is 1.8
    assert all((left, seconds) == (0, pytest.approx(1.9)) for left, seconds in seen)


@pytest.mark.parametrize("arriving", [100_000, 130_000])
def test_a_backlog_is_worked_off_in_batches_of_the_goal_and_then_there_is_none(arriving):
    admission, job = Admission(GOAL, INTERVAL), Job(0.4, 1e-5)
    catch_up(admission, job, 40)
    seen = live(admission, job, arriving, batches=300, waiting=1_000_000)
    assert seen[-1] == (0, pytest.approx(job.fixed + job.per_record * arriving))
    assert all(seconds <= 1.05 * GOAL for left, seconds in seen if left > 0.2 * arriving)
    assert all(seconds < INTERVAL for _, seconds in seen)
