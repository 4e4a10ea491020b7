import itertools
from dataclasses import replace

import pytest

from millrace_jobs.partitioners.registry import NATIVE
from millrace_jobs.selection.costs import CombineTask, Resources, python_prior, sql_prior
from millrace_jobs.selection.forecast import Forecaster
from millrace_jobs.selection.selector import CANDIDATES, CLEAR_GAIN, LATEST, PRIOR_ERROR, SOONEST, TRIAL, Selector

from .simulated import SimulatedQuery, zipf

ROWS = 60_000
AMONG = ("native", "hash", "shuffle", "pkg")

QUERIES = {
    "even keys": (SimulatedQuery(), 0.0, 6_000),
    "skewed, heavy records": (SimulatedQuery(record=20e-6), 1.2, 6_000),
    "skewed, heavy groups": (SimulatedQuery(group=200e-6, merge=100e-6), 1.0, 6_000),
    "few keys, heavy records": (SimulatedQuery(record=20e-6), 1.5, 50),
    "many slices": (SimulatedQuery(replicas=8), 1.0, 200),
}


def selector(query, start, prior=None, among=AMONG):
    resources = Resources(query.workers, query.workers)
    return Selector(Forecaster(prior or python_prior(), among, clock=lambda: 0.0), resources, start)


def run(chosen, query, streams, batches, first=0):
    """Batches in turn over the streams; the switches."""
    turn = itertools.cycle(streams)
    recorded = {}
    switches = []
    for number in range(first, first + batches):
        stream = next(turn)
        key = (chosen.algorithm, id(stream), query.burden)
        if key not in recorded:
            recorded[key] = query.batch(0, chosen.algorithm, stream)
        switches.append(chosen.observe(replace(recorded[key], number=number)))
    return [switch for switch in switches if switch is not None]


@pytest.mark.parametrize("start", AMONG)
@pytest.mark.parametrize("name", QUERIES)
def test_the_selector_comes_within_the_margin_of_the_best_wherever_it_starts(name, start):
    query, skew, keys = QUERIES[name]
    streams = [zipf(ROWS, keys, skew, seed) for seed in (1, 2)]
    chosen = selector(query, start)
    run(chosen, query, streams, 40)
    seconds = {a: sum(query.seconds(a, stream) for stream in streams) for a in AMONG}
    assert seconds[chosen.algorithm] <= 1.05 * min(seconds.values()), (chosen.algorithm, seconds)


def test_batches_of_zero_time_are_ignored():
    query, stream = SimulatedQuery(), zipf(ROWS, 6_000, 1.0)
    chosen = selector(query, "hash", among=("hash",))
    run(chosen, query, [stream], 4)
    compared = len(chosen.outcomes)
    timeless = replace(query.batch(4, "hash", stream), seconds=0.0)
    assert [chosen.observe(timeless) for _ in range(40)] == [None] * 40
    assert len(chosen.outcomes) == compared


@pytest.mark.parametrize("slices", ["of the same code", "by Spark's own plan"])
def test_predictions_of_the_selector_come_true(slices):
    query = SimulatedQuery(slice_record=None if slices == "of the same code" else 2e-6)
    chosen = selector(query, NATIVE, sql_prior(1) if query.slice_record else None)
    run(chosen, query, [zipf(ROWS, 6_000, 1.0)], 20)
    assert len(chosen.outcomes) >= 2
    assert abs(chosen.outcomes[-1].error) < 0.05


def test_sql_stays_native_where_even_easy_keys_promise_nothing():
    query = SimulatedQuery(slice_record=0.1e-6, replicas=8)
    chosen = selector(query, NATIVE, sql_prior(1))
    assert run(chosen, query, [zipf(ROWS, 100, 0.5)], 30) == []


NO_GAIN = SimulatedQuery(record=0.05e-6, group=0.2e-6, merge=2e-6, slice_record=0.62e-6, workers=4, overhead=0.5)
"""Routing is forecast to save nothing, although by less than the prior may be wrong."""

SMALL_GAIN = replace(NO_GAIN, merge=60e-6)
"""Routing is forecast to save less than the prior may be wrong."""


@pytest.mark.parametrize("waiting", [0, 20 * ROWS])
def test_sql_stays_native_without_a_forecast_gain(waiting):
    streams = [zipf(ROWS, 15_000, 0.0)]
    chosen = selector(NO_GAIN, NATIVE, sql_prior(1))
    assert run(chosen, replace(NO_GAIN, load=4.0, waiting=waiting), streams, 60) == []
    seconds = {a: NO_GAIN.seconds(a, streams[0]) for a in AMONG}
    assert seconds[NATIVE] == min(seconds.values())


def test_a_job_at_ease_tries_nothing_that_the_prior_does_not_promise():
    streams = [zipf(ROWS, 15_000, 0.0)]
    pressed, at_ease = (selector(SMALL_GAIN, NATIVE, sql_prior(1)) for _ in range(2))
    first = run(pressed, SMALL_GAIN, streams, 30)[0]
    assert (first.before.algorithm, 0 < first.gain < PRIOR_ERROR) == (NATIVE, True)
    assert run(at_ease, replace(SMALL_GAIN, load=0.4), streams, 30) == []


def test_a_job_whose_batches_are_long_for_no_record_tries_nothing_until_records_wait():
    streams = [zipf(ROWS, 15_000, 0.0)]
    chosen = selector(SMALL_GAIN, NATIVE, sql_prior(1))
    assert run(chosen, replace(SMALL_GAIN, load=1.8), streams, 30) == []
    first = run(chosen, replace(SMALL_GAIN, load=1.8, waiting=2 * ROWS), streams, 60)[0]
    assert (first.before.algorithm, 0 < first.gain < PRIOR_ERROR) == (NATIVE, True)


def test_native_is_not_left_after_one_batch_whatever_the_prior_promises():
    """The first batches of a query are slow, because code is compiled in them."""
    query = SimulatedQuery(record=0.05e-6, group=0.2e-6, merge=200e-6, slice_record=0.62e-6, replicas=8)
    first = run(selector(query, NATIVE, sql_prior(1)), query, [zipf(ROWS, 15_000, 0.0)], 30)[0]
    assert first.gain > CLEAR_GAIN
    assert first.batch == 1 + SOONEST


def test_a_job_at_ease_leaves_native_for_a_large_gain():
    query = SimulatedQuery(record=0.05e-6, group=0.2e-6, merge=60e-6, slice_record=0.6e-6, replicas=8, load=0.4)
    chosen = selector(query, NATIVE, sql_prior(1))
    run(chosen, query, [zipf(ROWS, 15_000, 0.0)], 30)
    assert chosen.algorithm == "hash"


def test_sql_leaves_native_where_its_merge_costs_more():
    query = SimulatedQuery(record=0.05e-6, group=0.2e-6, merge=20e-6, slice_record=0.6e-6, replicas=8)
    streams = [zipf(ROWS, 15_000, 0.0)]
    chosen = selector(query, NATIVE, sql_prior(1))
    switches = run(chosen, query, streams, 30)
    assert switches[0].before.algorithm == NATIVE
    assert chosen.algorithm == "hash"


def test_a_stream_that_changes_is_followed_and_back():
    query = SimulatedQuery(record=20e-6)
    even, skewed = [zipf(ROWS, 6_000, 0.0)], [zipf(ROWS, 6_000, 1.5)]
    chosen = selector(query, "hash", among=("hash", "shuffle"))
    run(chosen, query, even, 20)
    assert chosen.algorithm == "hash"
    (there,) = run(chosen, query, skewed, 60, first=20)
    assert (there.after.algorithm, there.reason) == ("shuffle", "imbalance")
    query.group = query.merge = 500e-6  # and now partial results are dear
    (back,) = run(chosen, query, even, 80, first=80)
    assert (back.after.algorithm, back.reason) == ("hash", "aggregation cost")


def test_batches_that_become_slow_are_looked_at_soon():
    query = SimulatedQuery(record=20e-6)
    chosen = selector(query, "hash", among=("hash", "shuffle"))
    run(chosen, query, [zipf(ROWS, 6_000, 0.0)], 70)  # evaluations are rare by now
    (switch,) = run(chosen, query, [zipf(ROWS, 6_000, 1.5)], 60, first=70)
    assert (switch.after.algorithm, switch.reason) == ("shuffle", "imbalance")
    assert switch.batch < 70 + SOONEST


def test_an_algorithm_that_disappoints_is_left_and_not_tried_again_soon():
    """Nothing in any model foresees what pkg costs here."""
    query = SimulatedQuery(record=20e-6, burden=5.0, burdened="shuffle")
    streams = [zipf(ROWS, 50, 1.5)]
    chosen = selector(query, "hash", among=("hash", "shuffle"))
    switches = run(chosen, query, streams, 150)
    assert [(s.before.algorithm, s.after.algorithm) for s in switches] == [("hash", "shuffle"), ("shuffle", "hash")]
    assert switches[1].batch - switches[0].batch < TRIAL
    assert switches[1].reason == "measured"


def test_native_is_not_left_and_taken_back_again_and_again():
    """Whichever is run turns out to be the slower one: each exchange makes the next one dearer."""
    query = SimulatedQuery(record=2e-6, slice_record=3e-6, workers=8)
    streams = [zipf(ROWS, 6_000, 0.5)]
    chosen = selector(query, NATIVE, sql_prior(1), among=("native", "hash"))
    switches = []
    for start in range(0, 400, 10):
        query.burden, query.burdened = 0.05, chosen.algorithm
        switches += run(chosen, query, streams, 10, first=start)
    assert len(switches) <= 6


def test_small_gains_change_nothing():
    query = SimulatedQuery(burden=0.005, burdened="hash")
    chosen = selector(query, "hash", among=("hash", "hash"))
    assert run(chosen, query, [zipf(ROWS, 6_000, 0.0)], 60) == []


def test_evaluations_become_rare_when_nothing_is_to_be_gained():
    query = SimulatedQuery()
    chosen = selector(query, "hash", among=("hash", "pkg"))
    run(chosen, query, [zipf(ROWS, 6_000, 0.0)], 80)
    at = [outcome.batch for outcome in chosen.outcomes]
    gaps = [later - earlier for earlier, later in itertools.pairwise(at)]
    assert gaps == sorted(gaps)
    assert gaps[-1] == LATEST


def test_batches_of_another_plan_and_empty_ones_are_left_out():
    query = SimulatedQuery()
    chosen = selector(query, "hash")
    batch = query.batch(0, "pkg", zipf(1000, 10, 0.0))
    for number in range(10):
        assert chosen.observe(replace(batch, number=number)) is None
        assert chosen.observe(replace(batch, number=number, algorithm="hash", rows=0, tasks=(), profile=None)) is None
    assert chosen.candidates == {}


def test_other_numbers_of_tasks_start_over():
    query = SimulatedQuery(record=20e-6)
    streams = [zipf(ROWS, 6_000, 1.5)]
    chosen = selector(query, "hash", among=("hash", "shuffle"))
    run(chosen, query, streams, 2)
    query.workers = 4
    batch = query.batch(2, chosen.algorithm, streams[0])
    before = len(chosen.outcomes)
    assert chosen.observe(batch) is None  # the first under its plan
    assert len(chosen.outcomes) == before
    run(chosen, query, streams, 10, first=3)
    assert chosen.algorithm == "shuffle"


def test_other_cores_start_over():
    query = SimulatedQuery()
    streams = [zipf(ROWS, 6_000, 0.0)]
    chosen = selector(query, "hash", among=("hash", "pkg"))
    run(chosen, query, streams, 20)
    before = chosen.candidates["hash"].time.combine
    chosen.use(Resources(query.workers // 4, query.workers))
    batch = query.batch(20, "hash", streams[0])
    assert chosen.observe(batch) is None  # the first on them
    chosen.observe(replace(batch, number=21))
    assert chosen.candidates["hash"].time.combine == pytest.approx(4 * before, rel=0.1)


def test_batches_whose_records_are_all_filtered_out_change_nothing():
    query = SimulatedQuery()
    chosen = selector(query, "hash", among=CANDIDATES)
    batch = query.batch(0, "hash", zipf(0, 10, 0.0))
    idle = replace(batch, rows=5000, tasks=(CombineTask(0, 0, 0.001),), profile=batch.profile)
    for number in range(20):
        chosen.observe(replace(idle, number=number))
    assert set(chosen.candidates) == set(CANDIDATES)
