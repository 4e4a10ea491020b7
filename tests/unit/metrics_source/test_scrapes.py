import random

from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.dedicated.replica_metrics import ReplicaMetrics
from millrace_jobs.run.metrics_contract import CONTRACT
from millrace_operator.metrics_source.job_metrics import (
    CREATED,
    FIELDS,
    NAMES,
    REPLICA_FIELDS,
    Scrape,
    of_replicas,
    whole_scrapes,
)
from millrace_operator.metrics_source.result import Sample, Series
from millrace_operator.scaling.observation import SERIES

NOT_OF_THE_JOB = {"executors", "busy_core_seconds_total", *REPLICA_FIELDS.values()}
METRIC = {field: (name, stage) for (name, stage), field in FIELDS.items()}
COUNTERS = {"batches_total": 3, "rows_total": 30, "merge_seconds_total": 1, "partials_total": 5, "updates_total": 4} | {
    "input_bytes_total": 900,
    "routed_total": 20,
    "route_bytes_total": 600,
    "combine_bytes_total": 80,
    "longest_slice_seconds_total": 2,
    "sink_seconds_total": 1,
}


def series(field, samples, pod="q-driver-0", **labels):
    name, part = METRIC.get(field, (field, ""))
    parts = {"step" if "_step_" in name else "stage": part} if part else {}
    return Series({"__name__": name, "pod": pod} | parts | labels, tuple(Sample(*pair) for pair in samples))


def driver(times, started=None, counters=COUNTERS, **labels):
    """What a driver says at each of these times."""
    made = [series(field, [(time, value) for time in times], **labels) for field, value in counters.items()]
    return made + ([series(CREATED, [(time, started) for time in times], **labels)] if started is not None else [])


def test_every_metric_is_in_the_jobs_contract():
    exported = {metric.name for metric in CONTRACT if metric.kind != "histogram"}
    exported |= {metric.name + end for metric in CONTRACT if metric.kind == "histogram" for end in ("_sum", "_count")}
    assert {name for name, _ in FIELDS} <= exported
    in_parts = {metric.name for metric in CONTRACT if {"stage", "step"} & set(metric.labels)}
    assert {bool(part) == any(name.startswith(known) for known in in_parts) for name, part in FIELDS} == {True}
    assert set(NAMES) == {name for name, _ in FIELDS} | {CREATED, *REPLICA_FIELDS}


def test_every_metric_of_replicas_is_exported_with_the_number_of_the_replica():
    families = ReplicaMetrics("trips", 3, 2.0).registry.collect()
    labels = {sample.name: sample.labels for family in families for sample in family.samples}
    assert all(labels[name] == {"query": "trips", "replica": "3"} for name in REPLICA_FIELDS)


def test_every_field_of_an_answer_has_its_metric():
    assert set(FIELDS.values()) == set(SERIES) - NOT_OF_THE_JOB
    assert len(set(FIELDS.values())) == len(FIELDS)


def test_series_without_samples_make_no_scrapes():
    assert whole_scrapes([]) == []
    assert whole_scrapes([series("batches_total", [])]) == []
    assert whole_scrapes([series("another", [(1, 1)])]) == []


def test_values_of_one_time_belong_together():
    found = whole_scrapes(
        [*driver([10, 20], started=5), series("lag_rows", [(20, 7)]), series("imbalance", [(10, 0.5)])]
    )
    assert found == [Scrape(10, 5, COUNTERS | {"imbalance": 0.5}), Scrape(20, 5, COUNTERS | {"lag_rows": 7})]


def test_a_scrape_without_a_counter_is_not_whole():
    partial = [series("batches_total", [(30, 4)]), series("lag_rows", [(30, 9)])]
    broken = [one for one in driver([10, 20]) if one.labels["__name__"] != "millrace_batches_total"]
    found = whole_scrapes([*broken, series("batches_total", [(10, 3), (20, 3), (30, 4)]), partial[1]])
    assert [scrape.time for scrape in found] == [10, 20]


def test_a_counter_that_is_never_there_is_not_waited_for():
    fewer = {field: value for field, value in COUNTERS.items() if field != "partials_total"}
    assert [scrape.values for scrape in whole_scrapes(driver([10], counters=fewer))] == [fewer]


def test_of_two_drivers_the_one_that_began_last_counts_from_when_it_was_seen():
    old, new = driver([10, 20, 30, 40], started=1, instance="old"), driver([25, 35], started=22, instance="new")
    assert [(scrape.time, scrape.started) for scrape in whole_scrapes(new + old)] == [
        (10, 1),
        (20, 1),
        (25, 22),
        (35, 22),
    ]


def test_without_a_time_of_creation_the_one_that_was_seen_last_counts():
    old, new = driver([10, 20, 30], pod="old"), driver([25, 28], pod="new")
    assert [(scrape.time, scrape.started) for scrape in whole_scrapes(old + new)] == [
        (10, 10),
        (20, 10),
        (25, 25),
        (28, 25),
    ]


def test_a_driver_that_starts_over_under_the_same_labels_is_followed():
    again = [
        *driver([30], started=25, counters=dict.fromkeys(COUNTERS, 0)),
        *driver([10, 20], started=1),
        series("route_tasks_total", [(10, 8), (20, 8)]),
    ]
    found = whole_scrapes(again)
    assert [scrape.time for scrape in found] == [10, 20, 30]
    assert found[-1].values == dict.fromkeys(COUNTERS, 0)


@given(st.dictionaries(st.integers(1, 9), st.sets(st.sampled_from(sorted(METRIC))), max_size=6), st.randoms())
def test_values_of_different_scrapes_never_mix(scraped, chance):
    """Each value is its time: whatever is missing where, and in whatever order and pieces series come."""
    pieces = [series(field, [(time, time)]) for time, fields in scraped.items() for field in fields]
    chance.shuffle(pieces)
    found = whole_scrapes(pieces)
    assert [scrape.time for scrape in found] == sorted({scrape.time for scrape in found})
    for scrape in found:
        assert dict(scrape.values) == dict.fromkeys(scraped[scrape.time], scrape.time)
    ever = set(COUNTERS) & {field for fields in scraped.values() for field in fields}
    assert {scrape.time for scrape in found} == {time for time, fields in scraped.items() if fields and ever <= fields}


def test_the_order_of_series_does_not_matter():
    scraped = (
        driver([10, 20, 30], started=1, pod="a")
        + driver([20, 30], started=1, pod="b")
        + driver([30, 40], started=9, pod="c")
    )
    shuffled = random.Random(3).sample(scraped, len(scraped))
    assert whole_scrapes(shuffled) == whole_scrapes(scraped)


SCRAPE = Scrape(20, 5, {"replicas": 2.0})
BUSY, LAG = "millrace_partitioner_busy_seconds_total", "millrace_partitioner_lag_rows"


def replica(number, samples, name=BUSY, **labels):
    return Series({"__name__": name, "replica": number} | labels, tuple(Sample(*pair) for pair in samples))


def test_what_replicas_say_is_summed_as_it_was_at_the_drivers_scrape():
    found = of_replicas(
        [
            replica("0", [(5, 1), (12, 2), (22, 8)]),
            replica("1", [(8, 3), (19, 4)]),
            replica("0", [(12, 10)], LAG),
            replica("1", [(19, 20)], LAG),
            *driver([20], started=5),
        ],
        SCRAPE,
    )
    assert found == {"dedicated_busy_seconds_total": 6, "dedicated_lag_rows": 30}


def test_a_replica_that_moved_to_another_pod_counts_once():
    moved = [replica("1", [(4, 9)], instance="a"), replica("1", [(15, 1)], instance="b"), replica("0", [(12, 2)])]
    assert of_replicas(moved, SCRAPE) == of_replicas(moved[::-1], SCRAPE) == {"dedicated_busy_seconds_total": 3}


def test_a_sum_over_other_replicas_than_those_of_the_plan_is_none():
    assert of_replicas([replica("0", [(12, 2)])], SCRAPE) == {}
    assert of_replicas([replica(str(number), [(12, 2)]) for number in range(3)], SCRAPE) == {}
    assert of_replicas([replica("0", [(12, 2)]), replica("1", [(21, 2)])], SCRAPE) == {}
    assert of_replicas(driver([20], started=5), SCRAPE) == {}
