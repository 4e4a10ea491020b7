from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace_operator.scaling.shape import Shape
from millrace_research.arena.simulation.cluster import ClusterProfile
from millrace_research.arena.simulation.job import BatchNoise, JobProfile, Noise
from millrace_research.arena.simulation.keys import Keys, KeySchedule, always
from millrace_research.arena.simulation.metrics import MetricsProfile
from millrace_research.arena.simulation.run import simulate

from .scenes import EASY, Patient, Planned, dedicated, rates, scene


def run(scenario, policy=None, seed=1):
    return simulate(scenario, policy or Patient(), seed)


def times(run):
    return [(round(batch.planned, 6), round(batch.seconds, 6), batch.rows) for batch in run.batches]


def test_batches_take_the_time_worked_out_by_hand():
    # 100 records/s: batches of 200 take 0.1 + 200 * 2 ms / 2 tasks + 4 tasks of 0.1 s on two cores
    assert times(run(scene(rates((0, 100), (6, 100))))) == [(2, 0.5, 200), (4, 0.5, 200)]


def test_a_batch_over_its_interval_is_followed_at_once_by_all_that_waits():
    # at 4.3 it is the records of 2.3 s, and at 6.9 the last 700, since none come after 5
    arrivals = rates((0, 1000), (5, 1000), (5, 0), (12, 0))
    assert times(run(scene(arrivals))) == [
        (2, 2.3, 2000),
        (4.3, 2.6, 2300),
        (6.9, 1.0, 700),
    ]


def test_after_an_overrun_the_next_trigger_is_the_next_multiple():
    # the batch planned at 2.5 ends at 3.1, which is before 4
    job = replace(EASY, interval=1.0)
    arrivals = rates((0, 0), (1, 0), (1, 100_000), (1.01, 100_000), (1.01, 0), (2.5, 0), (2.5, 2), (6, 2))
    started = [planned for planned, _, _ in times(run(scene(arrivals, job=job)))]
    assert started == pytest.approx([2, 3.3, 4, 5])


def test_each_trigger_has_its_own_noise_with_any_interval(monkeypatch):
    triggers = []
    monkeypatch.setattr(BatchNoise, "next_batch", lambda noise, trigger: triggers.append(trigger))
    run(scene(rates((0, 100), (21, 100)), job=replace(EASY, interval=0.7)))
    assert triggers == list(range(1, 30))  # at 0 there is no record, and so no batch


def test_the_admission_cap_leaves_the_rest_to_the_next_batch():
    job = replace(EASY, max_rows=300)
    result = run(scene(rates((0, 400), (4, 400), (4, 0), (14, 0)), job=job))
    assert [batch.rows for batch in result.batches] == [300, 300, 300, 300, 300, 100]
    assert [batch.backlog for batch in result.batches][:2] == [740, 1000]
    assert [round(batch.newest, 6) for batch in result.batches] == [0.75, 1.5, 2.25, 3, 3.75, 12]


def test_the_answer_is_that_of_the_last_batch():
    policy = Planned({}, period=5.0)
    job = replace(EASY, max_rows=150)
    run(scene(rates((0, 100), (20, 100)), job=job, metrics=MetricsProfile(delay_seconds=0)), policy)
    answer = policy.calls[0][0]
    assert answer.time == 5
    assert (answer.batches_total, answer.rows_total, answer.lag_rows) == (2, 300, 100)
    assert answer.processing_seconds_total == pytest.approx(2 * 0.45)
    assert (answer.route_tasks_total, answer.combine_tasks_total) == (2, 4)
    assert answer.combine_seconds_total == pytest.approx(300 * 2e-3)
    assert answer.merge_seconds_total == pytest.approx(2 * 0.4)
    assert answer.busy_core_seconds_total == pytest.approx(300 * 2e-3 + 2 * 0.4)
    assert answer.keys == answer.updates_total / 2 == round(Keys(1000).appearing(150))
    assert answer.partials_total / 2 == round(2 * Keys(1000).appearing(75))
    assert (answer.epoch, answer.parallelism, answer.replicas, answer.executors) == (0, 2, 1, 1)
    assert (answer.interval_seconds, answer.imbalance) == (2, 0)
    assert answer.dedicated_busy_seconds_total is None


def test_every_pane_has_results_of_its_own():
    policy = Planned({}, period=5.0)
    run(scene(rates((0, 100), (20, 100)), job=replace(EASY, panes=4), metrics=MetricsProfile(delay_seconds=0)), policy)
    answer, keys = policy.calls[0][0], Keys(1000)
    assert answer.keys == round(keys.appearing(200))
    assert answer.updates_total / 2 == round(4 * keys.appearing(50))
    assert answer.partials_total / 2 == round(8 * keys.appearing(25))


def test_a_plan_takes_effect_with_the_next_batch_and_executors_when_they_come():
    policy = Planned({3.0: Shape(2, 4, 1)})
    result = run(scene(rates((0, 100), (30, 100))), policy)
    assert result.rescales == ((3.0, Shape(1, 2, 1), Shape(2, 4, 1), False),)
    tasks = [(batch.planned, batch.epoch, batch.plan.parallelism) for batch in result.batches]
    assert tasks[:2] == [(2, 0, 2), (4, 1, 2)]  # four tasks are for two executors
    assert [batch.planned for batch in result.batches if batch.executors == 2] == [24, 26, 28]
    assert tasks[-4:] == [(22, 1, 2), (24, 1, 4), (26, 1, 4), (28, 1, 4)]
    assert {round(batch.seconds, 6) for batch in result.batches[1:11]} == {0.5}
    assert {round(batch.seconds, 6) for batch in result.batches[11:]} == {0.3}
    assert (policy.calls[2][1].plan, policy.calls[2][1].epoch) == (Shape(1, 2, 1), 0)
    assert (policy.calls[3][1].plan, policy.calls[3][1].epoch) == (Shape(2, 4, 1), 1)
    assert policy.calls[3][1].executors_pending_since == 3
    assert replace(policy.calls[25][1], now=0.0) == replace(policy.calls[24][1], now=0.0)


def test_a_stage_uses_the_executors_that_are_there_when_it_begins():
    # the executor comes at 23.0; the batch planned at 22 combines until 23.1 and merges on four cores
    policy = Planned({3.0: Shape(2, 2, 1)})
    result = run(scene(rates((0, 500), (24, 500))), policy)
    assert times(result)[-1] == (22, 1.2, 1000)
    assert times(result)[-2] == (20, 1.3, 1000)


def test_the_same_plan_changes_nothing():
    result = run(scene(), Planned({3.0: Shape(1, 2, 1)}))
    assert result.rescales == ()
    assert {batch.epoch for batch in result.batches} == {0}


def test_a_plan_out_of_bounds_is_refused():
    with pytest.raises(ValueError, match="9/2/1 is out of bounds"):
        run(scene(), Planned({3.0: Shape(9, 2, 1)}))


def test_core_seconds_are_those_worked_out_by_hand():
    # one executor of two cores for 60 s; a second one is asked for at 10 and, drained at 40, gone at 46
    result = run(scene(), Planned({10.0: Shape(2, 2, 1), 40.0: Shape(1, 2, 1)}))
    assert result.core_seconds == 2 * (60 + 36)
    assert result.core_hours == result.core_seconds / 3600


def test_tasks_are_slower_while_executors_drain_and_when_new_ones_begin():
    cluster = ClusterProfile(
        start_seconds=20, start_scatter=0, drain_seconds=6, drain_slowdown=0.5, warm_up_seconds=0.7
    )
    policy = Planned({3.0: Shape(2, 2, 1), 41.0: Shape(1, 2, 1)})
    seconds = {batch.planned: batch.seconds for batch in run(scene(cluster=cluster), policy).batches}
    assert seconds[22] == pytest.approx(0.5)
    assert seconds[24] == pytest.approx(0.4 + 0.7)
    assert seconds[26] == pytest.approx(0.4)
    assert seconds[42] == seconds[46] == pytest.approx(0.1 + 0.4 * 1.5)
    assert seconds[48] == pytest.approx(0.5)


def test_an_executor_that_never_comes_stays_pending_and_costs_nothing():
    cluster = ClusterProfile(never=1.0)
    policy = Planned({3.0: Shape(2, 2, 1)})
    result = run(scene(cluster=cluster), policy)
    assert set(result.executors) == {1}
    assert result.core_seconds == 2 * 60
    assert policy.calls[-1][1].executors_pending_since == 3


def test_without_any_executor_a_batch_waits():
    cluster = ClusterProfile(start_seconds=20, start_scatter=0, lost_every=15, warm_up_seconds=0)
    result = run(scene(rates((0, 100), (600, 100)), cluster=cluster), seed=2)
    assert max(result.seconds) > 10
    assert result.rows.sum() + result.unfinished == result.arrived


def test_a_batch_that_never_ends_leaves_its_records_unfinished():
    cluster = ClusterProfile(never=1.0, lost_every=20)
    result = run(scene(rates((0, 100), (600, 100)), cluster=cluster))
    assert result.end[-1] < 300
    assert result.unfinished == 60_000 - result.rows.sum()
    assert result.largest_backlog == result.unfinished
    assert result.unfinished_since == result.batches[-1].newest
    late = result.unfinished * (1 - 4 / (600 - result.unfinished_since))
    assert result.late_rows == pytest.approx(late, rel=0.01)


def test_a_failed_batch_is_retried_and_counted_once():
    job = replace(EASY, noise=Noise(task=0, batch=0, slow=0, failing=0.5, retry_seconds=0.5))
    policy = Planned({}, period=599.0)
    result = run(scene(rates((0, 100), (600, 100)), job=job), policy)
    # a failed attempt takes its fixed part and one, two or three of its stages
    assert {round(seconds, 6) for seconds in result.seconds} == {0.5, 0.5 + 0.6, 0.5 + 0.8, 0.5 + 1.0}
    assert np.mean(result.seconds > 0.6) == pytest.approx(0.5, abs=0.1)
    answer = policy.calls[0][0]
    assert answer.rows_total == result.rows[: int(answer.batches_total)].sum()
    assert answer.combine_seconds_total == pytest.approx(answer.rows_total * 2e-3)
    assert answer.busy_core_seconds_total > answer.combine_seconds_total + answer.merge_seconds_total


def test_lost_executors_make_a_batch_longer():
    lossy = ClusterProfile(start_seconds=5, lost_every=60, warm_up_seconds=0)
    calm = ClusterProfile(start_seconds=5, warm_up_seconds=0)
    means = [
        run(scene(rates((0, 500), (600, 500)), initial=Shape(4, 8, 1), cluster=cluster)).seconds.mean()
        for cluster in (calm, lossy)
    ]
    assert means[1] > means[0] * 1.05


def test_while_executors_are_missing_batches_need_no_other_wave_of_tasks():
    lossy = ClusterProfile(start_seconds=30, start_scatter=0, lost_every=200, warm_up_seconds=0)
    result = run(scene(rates((0, 100), (600, 100)), initial=Shape(4, 16, 1), cluster=lossy))
    tasks = {(batch.executors, batch.plan.parallelism) for batch in result.batches}
    assert tasks >= {(4, 16), (3, 12)}
    assert tasks <= {(4, 16), (3, 12), (2, 8), (1, 4)}


def test_the_driver_hands_tasks_out_one_by_one_and_cores_get_in_each_others_way():
    # combine: 0.2 s each, the second one handed out after 0.1 s; merge: two rounds of 0.1 s; both cores busy: 10 % more
    job = replace(EASY, schedule=0.05, contention=0.1)
    seconds = run(scene(rates((0, 100), (6, 100)), job=job)).seconds
    assert seconds[0] == pytest.approx(0.1 + 0.05 + (0.1 + 0.22) + (0.1 + 2 * 0.11))


def test_some_batches_are_held_up_by_chance():
    job = replace(EASY, noise=Noise(task=0, batch=0, slow=0.1, slow_seconds=5.0))
    seconds = run(scene(rates((0, 10), (4000, 10)), job=job)).seconds
    longer = seconds[seconds > 0.4] - 0.4
    assert len(longer) / len(seconds) == pytest.approx(0.1, rel=0.3)
    assert longer.mean() == pytest.approx(5, rel=0.3)


def test_keys_shift_at_their_time():
    schedule = KeySchedule([(0, Keys(50)), (30, Keys(5000))])
    result = run(scene(keys=schedule))
    assert all(batch.distinct <= 50 for batch in result.batches if batch.planned < 30)
    assert all(batch.distinct > 150 for batch in result.batches if batch.planned >= 30)


def test_latencies_are_those_worked_out_by_hand():
    # all batches have the records of the last two seconds and take 0.5 s
    result = run(scene(rates((0, 100), (60, 100))))
    latencies = result.latencies.quantiles([0.5, 0.95])
    assert latencies == pytest.approx([1.5, 2.4], abs=0.02)
    assert result.late_rows == 0
    assert result.utilization == pytest.approx(0.25)


def test_dedicated_partitioners_pass_on_what_they_can():
    # 150 records/s, of which one replica passes on 100
    result = run(dedicated(arrivals=rates((0, 150), (40, 150))))
    assert result.rows == pytest.approx([200] * 19)
    assert result.batches[-1].backlog == pytest.approx(50 * 38 + 150 * result.batches[-1].seconds, abs=2)


def test_dedicated_partitioners_are_pods_that_take_time_to_come_and_cost():
    policy = Planned({9.0: Shape(1, 2, 2)}, period=3.0)
    result = run(dedicated(arrivals=rates((0, 150), (80, 150))), policy)
    # the second replica comes at 29, and what has waited is done at 58
    assert result.rows[13] == pytest.approx(200)
    assert result.rows[15] == pytest.approx(400)
    assert result.rows[-1] == pytest.approx(300)
    assert result.core_seconds == 2 * 80 + 1 * 80 + 1 * 71
    answer = policy.calls[-1][0]
    assert answer.dedicated_busy_seconds_total == pytest.approx(0.01 * (29 * 100 + 29 * 200 + 17 * 150), rel=0.01)
    assert answer.route_tasks_total is answer.route_seconds_total is None


def noisy(arrivals, **others):
    job = JobProfile(route=EASY.route, combine=EASY.combine, noise=Noise(failing=0.05, slow=0.05), **others)
    cluster = ClusterProfile(lost_every=300, never=0.1)
    return scene(arrivals, job=job, cluster=cluster, keys=always(Keys(500, exponent=1.0)))


class Restless:
    """Asks for another plan at random."""

    name = "restless"
    period = 7.0

    def __init__(self):
        self._rng = np.random.default_rng(0)
        self.answers = []

    def step(self, answer, situation):
        self.answers.append((situation.now, answer))
        return Shape(*(int(self._rng.integers(1, high + 1)) for high in (8, 16, 4)))


@settings(max_examples=25)
@given(
    st.lists(st.floats(0, 3000), min_size=2, max_size=6),
    st.integers(0, 2**32),
    st.sampled_from([None, 900]),
    st.booleans(),
)
def test_every_record_is_processed_once_or_waits(levels, seed, cap, apart):
    arrivals = rates(*((100.0 * at, level) for at, level in enumerate(levels)))
    scenario = replace(noisy(arrivals), job=replace(EASY, max_rows=cap))
    if apart:
        scenario = dedicated(arrivals=arrivals)
    result = simulate(scenario, Restless(), seed)
    assert result.rows.sum() + result.unfinished == result.arrived
    assert result.arrived == int(arrivals.arrived(arrivals.duration))
    batches = result.batches
    assert all(before.newest <= after.oldest for before, after in pairwise(batches))
    assert all(before.planned + before.seconds <= after.planned + 1e-9 for before, after in pairwise(batches))
    assert all(batch.oldest <= batch.newest <= batch.planned + 1e-9 for batch in batches)
    assert (result.backlog >= 0).all()


def test_the_same_seed_gives_the_same_run_and_another_one_another():
    scenario = noisy(rates((0, 500), (600, 2000)))
    policies = [Restless() for _ in range(3)]
    first, second, third = (simulate(scenario, policy, seed) for policy, seed in zip(policies, (1, 1, 2), strict=True))
    assert first.batches == second.batches
    assert policies[0].answers == policies[1].answers
    assert first.core_seconds == second.core_seconds
    assert first.batches != third.batches
