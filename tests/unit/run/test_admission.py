"""Batches of simulated jobs: how many records they are given, and how long it takes to work off what waits."""

import statistics
from itertools import pairwise

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from millrace_jobs.run.admission import MAX_GROWTH, MAX_SEARCH_SHARE, MAX_SHRINKAGE, MIN_LIMIT, FinishedBatch

from .simulated_jobs import (
    FIRST,
    INTERVAL,
    PLAN,
    PLENTY,
    TARGET,
    Change,
    Job,
    Knowing,
    RecordedJob,
    an_admission,
    best_batch,
    catch_up,
    knowing,
    recorded_jobs,
    total,
    usual,
)

GOAL = TARGET * INTERVAL

fixed_times = st.floats(0.02, 5.0)
task_times = st.floats(0.0, 0.3)
costs = st.floats(-7.0, -2.0).map(lambda exponent: 10**exponent)
intervals = st.sampled_from([0.2, 1.0, 2.0, 10.0])
hot_shares = st.floats(1 / 8, 1.0)
cold_starts = st.sampled_from([0.0, 5.0])
clocked_shares = st.sampled_from([None, 0.3, 1.0])


@given(fixed_times, task_times, costs, intervals, st.integers(15, 60), hot_shares, cold_starts, clocked_shares)
def test_a_backlog_is_worked_off_nearly_as_soon_as_by_one_who_knows_the_costs(
    fixed, task, cost, interval, batches, hot, cold, clocked
):
    def job():
        return Job(fixed, cost, task, hot=hot, cold=cold, clocked=clocked)

    waiting = batches * best_batch(job(), interval)
    seen = catch_up(an_admission(interval), job(), waiting=waiting)
    assert total(seen) <= 1.25 * knowing(job(), interval, waiting)


@given(fixed_times, task_times, costs, intervals, st.lists(hot_shares, min_size=2, max_size=4), st.booleans())
def test_a_backlog_is_worked_off_soon_where_a_key_gets_hot_and_where_the_plan_changes(
    fixed, task, cost, interval, hot, replanned
):
    def job():
        changes = [Change(part * n, each, ("pkg", 2, n) if replanned else PLAN) for n, each in enumerate(hot[1:], 1)]
        return Job(fixed, cost, task, hot=hot[0], changes=changes)

    part = 20 * best_batch(Job(fixed, cost, task), interval)
    seen = catch_up(an_admission(interval), job(), waiting=part * len(hot))
    assert total(seen) <= 1.25 * knowing(job(), interval, part * len(hot))


@pytest.mark.parametrize("fixed", [0.05, 0.3, 1.0, 1.7, 4.0])
@pytest.mark.parametrize("cost", [1e-6, 2e-5, 1e-3])
def test_a_backlog_is_worked_off_soon_under_noise(fixed, cost):
    ratios = []
    for seed in range(20):
        job, other = (Job(fixed, cost, 0.1, noise=0.15, seed=seed) for _ in range(2))
        waiting = 30 * best_batch(job, INTERVAL)
        seen = catch_up(an_admission(), job, waiting=waiting)
        ratios.append(total(seen) / knowing(other, INTERVAL, waiting))
    assert statistics.mean(ratios) <= 1.25


@given(fixed_times, task_times, costs, intervals)
def test_batches_come_to_the_length_they_should_have(fixed, task, cost, interval):
    job = Job(fixed, cost, task)
    best = best_batch(job, interval)
    assume(best > MIN_LIMIT)
    seen = catch_up(an_admission(interval), job, batches=60)
    assert usual(seen[-20:]) == pytest.approx(job.seconds(best), rel=0.2)
    assert all(after <= MAX_GROWTH * before + 1 for (before, _), (after, _) in pairwise(seen))


@pytest.mark.parametrize("interval", [0.2, 1.0, 2.0])
def test_the_clocks_of_tasks_show_sooner_that_most_of_a_batch_is_fixed(interval):
    def first_batches(clocked):
        return catch_up(an_admission(interval, first=5000), Job(0.4, 1e-5, 0.6, clocked=clocked), batches=5)

    records, sooner = (sum(rows for rows, _ in first_batches(clocked)) for clocked in (None, 1.0))
    assert sooner > 1.2 * records


def test_the_first_batch_does_not_lower_the_limit_for_what_took_its_tasks_no_time_on_records():
    admission = an_admission()
    admission.finished(FinishedBatch(FIRST, 40.0, 35.0, PLAN, on_records=2.0))
    assert admission.limit == FIRST


def stream(admission, job, arriving, interval, batches):
    """Run batches of a live stream; of each, the records that it could have had, those that it had, and those left."""
    seen, left = [], 0
    for _ in range(batches):
        there = left + arriving
        rows = min(there, admission.shares({"stream": left}, PLENTY)["stream"])
        batch = job.run(rows, arrived=arriving)
        admission.finished(batch)
        left += int(arriving * max(batch.seconds / interval, 1)) - rows
        seen.append((there, rows, left))
    return seen


def batches_to_catch_up(seen):
    """Return after how many batches of a stream none leaves records any more."""
    return max((number for number, (_, _, left) in enumerate(seen, 1) if left), default=0)


@given(fixed_times, task_times, costs, intervals, st.floats(0.0, 1.0), st.integers(MIN_LIMIT, 10**6))
@example(0.0234375, 0.0, 10**-6.578125, 0.2, 516_542.5 / 533_402, MIN_LIMIT)  # a cold start of 25 intervals
def test_what_arrives_within_an_interval_is_let_in_where_the_job_can_do_it(fixed, task, cost, interval, load, first):
    """At most a few batches later than by one who knows the costs, who also has a cold start's backlog to work off."""

    def job():
        return Job(fixed, cost, task)

    possible = int((TARGET * interval - job().seconds(0)) / cost * 0.9)
    assume(possible >= 1)
    arriving = max(1, int(load * possible))
    seen = stream(an_admission(interval, first=first), job(), arriving, interval, batches=400)
    best = stream(Knowing(job(), interval), job(), arriving, interval, batches=400)
    assert batches_to_catch_up(best) < 300
    assert batches_to_catch_up(seen) <= batches_to_catch_up(best) + 10
    could = [(there, rows) for there, rows, _ in seen if job().seconds(there) <= 0.9 * TARGET * interval]
    assert sum(rows < there for there, rows in could) <= 6  # of the first ones, when little is known


def test_batches_outlast_their_interval_where_more_arrives_than_the_job_can_do():
    admission, job = an_admission(), Job(0.4, 1e-3)
    for _ in range(5):
        admission.finished(job.run(6000, arrived=6000))
    assert admission.shares({"stream": 100_000}, PLENTY)["stream"] >= 6000  # 6.4 s where the interval is 2 s


@given(fixed_times, costs, st.integers(1, 10**6), st.lists(st.integers(0, 10**7), min_size=1, max_size=4))
def test_no_batch_has_more_than_memory_holds(fixed, cost, most, waiting):
    admission, job = an_admission(), Job(fixed, cost)
    names = [str(number) for number in range(len(waiting))]
    for _ in range(10):
        shares = admission.shares(dict(zip(names, waiting, strict=True)), most)
        assert sum(shares.values()) <= max(most, len(names))
        admission.finished(job.run(sum(shares.values()), arrived=2 * most))


@pytest.mark.parametrize("seed", range(10))
def test_noise_does_not_drive_batches_far_from_where_they_should_be(seed):
    job, admission = Job(0.4, 1e-5, 0.1, noise=0.15, seed=seed), an_admission()
    catch_up(admission, job, 15)
    typical = sorted(job.seconds(rows) for rows, _ in catch_up(admission, job, 100))
    assert typical[-1] < 5 * GOAL
    assert typical[-20] < 1.6 * GOAL
    assert typical[5] > 0.5 * GOAL
    assert statistics.median(typical) == pytest.approx(GOAL, rel=0.2)


@pytest.mark.parametrize("seed", range(10))
def test_a_long_search_of_the_state_takes_a_fifth_of_a_batch(seed):
    job, admission = Job(0.2, 1e-5, search=1.5, noise=0.1, seed=seed), an_admission()
    catch_up(admission, job, 15)
    typical = sorted(job.seconds(rows) for rows, _ in catch_up(admission, job, 100))
    assert statistics.median(typical) == pytest.approx(1.5 / MAX_SEARCH_SHARE, rel=0.2)
    assert typical[-1] < 4 * 1.5 / MAX_SEARCH_SHARE


def test_batches_in_which_windows_end_show_no_longer_search():
    job, admission = Job(0.2, 1e-5, search=0.1), an_admission()
    catch_up(admission, job, 20)
    before = admission.limit
    job.search = 3.0
    catch_up(admission, job, 1)
    assert admission.limit <= before


def test_an_odd_batch_changes_little():
    seen = catch_up(an_admission(), Job(0.4, 1e-5, 0.1, odd={30: 20.0}), 60)
    assert seen[29][1] > 10 * GOAL
    assert min(rows for rows, _ in seen[30:]) > seen[28][0] / MAX_SHRINKAGE
    assert usual(seen[35:]) == pytest.approx(GOAL, rel=0.1)


@pytest.mark.parametrize("factor", [0.5, 2.0, 8.0])
def test_a_cost_that_changes_is_followed(factor):
    job, admission = Job(0.4, 1e-5), an_admission()
    catch_up(admission, job, 40)
    job.per_record *= factor
    seen = catch_up(admission, job, 30)
    assert usual(seen[5:]) == pytest.approx(GOAL, rel=0.1)
    assert sum(seconds > 1.5 * GOAL for _, seconds in seen) <= 5


def test_after_a_change_of_plan_it_goes_on_from_the_limit_and_learns_again():
    admission = an_admission()
    catch_up(admission, Job(0.4, 1e-5), 40)
    known = admission.limit
    seen = catch_up(admission, Job(0.4, 4e-5, cold=0, plan=("hash", 2, 2)), 12)
    assert [rows for rows, _ in seen[:3]] == [known] * 3  # the first batches under a plan tell nothing
    assert seen[3][0] < known / 2
    assert usual(seen[4:]) == pytest.approx(GOAL, rel=0.1)


def test_small_batches_of_a_live_stream_leave_a_limit_alone_that_large_ones_have_shown():
    admission, job = an_admission(), Job(0.4, 1e-5, 0.1, noise=0.3)
    catch_up(admission, job, 40)
    known = admission.limit
    for _ in range(200):
        batch = job.run(50)
        admission.finished(FinishedBatch(50, min(batch.seconds, GOAL), batch.work, PLAN))
    assert admission.limit == known


def test_a_slow_job_that_has_had_small_batches_only_is_not_given_a_large_one():
    admission, job = an_admission(), Job(0.3, 1e-3)
    for _ in range(10):
        admission.finished(job.run(200))
    assert job.seconds(admission.limit) < 1.1 * GOAL


@pytest.mark.parametrize(("rows", "seconds"), [(0, 1.0), (500, 0.0), (500, -3600.0)])
def test_batches_that_tell_nothing_are_passed_over(rows, seconds):
    admission, other = an_admission(), an_admission()
    catch_up(admission, Job(0.4, 1e-5), 20)
    catch_up(other, Job(0.4, 1e-5), 20)
    admission.finished(FinishedBatch(rows, seconds, seconds, PLAN, 10**9))
    assert catch_up(admission, Job(0.4, 1e-5), 5) == catch_up(other, Job(0.4, 1e-5), 5)


def test_the_first_batch_lowers_the_limit_where_even_a_cold_start_does_not_explain_how_long_it_took():
    admission = an_admission()
    admission.finished(FinishedBatch(FIRST, 30.0, 5.0, PLAN))
    assert admission.limit == FIRST
    admission = an_admission()
    admission.finished(FinishedBatch(FIRST, 300.0, 290.0, PLAN))
    assert admission.limit < FIRST / 30


def test_sources_share_the_limit_by_what_waits_and_none_is_left_out():
    admission = an_admission()
    assert admission.shares({"a": 7}, PLENTY) == {"a": FIRST}
    assert admission.shares({"a": 0, "b": 0}, PLENTY) == {"a": FIRST // 2, "b": FIRST // 2}
    shares = admission.shares({"big": 3_000_000, "small": 1_000_000, "none": 0}, PLENTY)
    assert FIRST <= sum(shares.values()) + 3 <= 1.25 * FIRST
    assert shares["none"] == int(FIRST / 12)
    assert shares["big"] == pytest.approx(3 * shares["small"], abs=3)


def test_a_source_with_little_to_show_takes_nothing_from_a_busy_one():
    admission, job = an_admission(), Job(0.5, 1e-5)
    arriving, left = {"busy": 120_000, "quiet": 10}, {"busy": 500_000, "quiet": 0}
    for _ in range(200):
        shares = admission.shares(left, PLENTY)
        rows = {name: min(left[name] + arriving[name], shares[name]) for name in left}
        left = {name: left[name] + arriving[name] - rows[name] for name in left}
        admission.finished(job.run(sum(rows.values()), arrived=sum(arriving.values())))
    assert left == {"busy": 0, "quiet": 0}


def live(admission, job, arriving, batches, waiting=0):
    """Run batches of a stream; what each leaves behind, and its seconds."""
    seen, left = [], waiting
    for _ in range(batches):
        rows = min(left + arriving, admission.shares({"stream": left}, PLENTY)["stream"])
        left += arriving - rows
        batch = job.run(rows, arrived=arriving)
        admission.finished(batch)
        seen.append((left, batch.seconds))
    return seen


def test_a_load_that_the_job_can_just_carry_makes_no_backlog():
    admission, job = an_admission(), Job(0.4, 1e-5, cold=0)
    catch_up(admission, job, 40)
    seen = live(admission, job, arriving=150_000, batches=200)  # 1.9 s, where the goal is 1.8
    assert all((left, seconds) == (0, pytest.approx(1.9)) for left, seconds in seen)


@pytest.mark.parametrize("arriving", [100_000, 130_000])
def test_a_backlog_is_worked_off_in_batches_of_the_goal_and_then_there_is_none(arriving):
    admission, job = an_admission(), Job(0.4, 1e-5, cold=0)
    catch_up(admission, job, 40)
    seen = live(admission, job, arriving, batches=300, waiting=1_000_000)
    assert seen[-1] == (0, pytest.approx(job.seconds(arriving)))
    behind = [seconds for left, seconds in seen if left > 0.2 * arriving]
    assert statistics.median(behind) <= 1.05 * GOAL
    assert sum(seconds > INTERVAL for seconds in behind) <= len(behind) / 8
    assert all(seconds < INTERVAL for _, seconds in seen[len(behind) + 1 :])


@pytest.mark.parametrize("name", recorded_jobs(), ids=lambda name: "-".join(map(str, name)))
@pytest.mark.parametrize("interval", [1.0, 2.0, 5.0])
def test_real_jobs_work_off_a_backlog_nearly_as_soon_as_one_who_knows_them(name, interval):
    points, ratios = recorded_jobs()[name], []
    for seed in range(10):
        job, other = RecordedJob(points, seed), RecordedJob(points, seed)
        waiting = 30 * best_batch(job, interval)
        seen = catch_up(an_admission(interval), job, waiting=waiting)
        ratios.append(total(seen) / knowing(other, interval, waiting))
    assert statistics.mean(ratios) <= 1.25
