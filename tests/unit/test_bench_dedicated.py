"""``bench.dedicated``: speeds from points, ratios within rounds, punctual manifests, and what a run prints."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.dedicated.arrivals import Arrival, punctuality
from bench.dedicated.heavy import NewestDigests
from bench.dedicated.progress import Progress, speed
from bench.dedicated.report import Figure, ratios
from bench.dedicated.runs import batch_milliseconds, task_seconds
from millrace_jobs.dedicated.manifest import Manifest
from millrace_jobs.kafka.cluster import Partition
from millrace_jobs.plan.control import Pin


@given(
    st.floats(1e3, 1e6),
    st.floats(0.1, 20.0),
    st.integers(3, 20),
    st.floats(0.0, 100.0),
)
def test_a_steady_process_has_its_speed_whenever_it_started_and_however_it_ended(
    rate: float, cost: float, seconds: int, began: float
) -> None:
    moved = [round(rate * (second + 1)) for second in range(seconds)]
    points = [Progress(began + count / rate, count, 3.0 + count * cost / 1e6) for count in moved]
    waited = Progress(points[-1].at + 1000, points[-1].records + 1, points[-1].processor + 50)
    found = speed([*points, waited])
    assert found.rate == pytest.approx(rate, rel=1e-6)
    assert found.cost == pytest.approx(cost, rel=1e-6)


@pytest.mark.parametrize(
    "points", [[], [Progress(0, 0, 0), Progress(1, 5, 1)], [Progress(0, 5, 0), Progress(1, 5, 1)] * 2]
)
def test_too_few_points_have_no_speed(points: list[Progress]) -> None:
    with pytest.raises(ValueError, match="too few"):
        speed(points)


def test_ratios_are_taken_within_rounds() -> None:
    figures = [
        Figure("copy", "c", "loop", 0, {"rate": 100.0}),
        Figure("copy", "c", "hash", 0, {"rate": 50.0}),
        Figure("copy", "c", "loop", 1, {"rate": 10.0}),
        Figure("copy", "c", "hash", 1, {"rate": 20.0, "alone": 1.0}),
        Figure("copy", "c", "hash", 2, {"rate": 20.0}),
    ]
    assert ratios(figures, "loop") == {("hash", "rate"): [0.5, 2.0]}


def manifest(batch: int, seconds: float, read: int = 10) -> Manifest:
    raw = {Partition("t", 0): 5}
    return Manifest("g", 0, batch, Pin(1, "prompt", 2, 4), raw, read=read, heartbeat=batch, seconds=seconds)


def test_manifests_are_late_from_the_end_of_their_interval_on() -> None:
    arrivals = [
        Arrival(10 * 2.0 - 0.04, 0, manifest(10, 0.02)),
        Arrival(11 * 2.0 + 0.06, 1, manifest(11, 0.10)),
        Arrival(12 * 2.0 - 0.02, 2, manifest(12, 0.04)),
        Arrival(13 * 2.0 + 1.00, 3, manifest(13, 1.00, read=0)),
    ]
    found = punctuality(arrivals, 2.0)
    assert found.intervals == 3
    assert found.late == pytest.approx(1 / 3)
    assert found.after == pytest.approx(-20.0)
    assert found.place == pytest.approx(0.02)
    with pytest.raises(ValueError, match="no manifest"):
        punctuality(arrivals[3:], 2.0)


def test_batch_times_are_those_of_the_last_batches_with_records() -> None:
    lines = ["batch=1 rows=5 rows/s=1 W=0.90 lag=0", "batch=2 rows=7 rows/s=1 W=0.20 lag=0", "batch=3 rows=0 W=0.01"]
    printed = "\n".join([*lines, "batch=4 rows=9 rows/s=1 W=0.40 lag=0"])
    assert batch_milliseconds(printed, 2, 2.0) == pytest.approx(600.0)


def test_seconds_of_tasks_are_read_by_stage() -> None:
    text = (
        "# TYPE millrace_stage_task_seconds histogram\n"
        'millrace_stage_task_seconds_bucket{le="0.1",query="q",stage="route"} 4.0\n'
        'millrace_stage_task_seconds_sum{query="q",stage="route"} 1.5\n'
        'millrace_stage_task_seconds_sum{query="q",stage="combine"} 2.5e-05\n'
    )
    assert task_seconds(text) == {"route": 1.5, "combine": 2.5e-05}


@given(st.lists(st.tuples(st.text(max_size=5), st.integers(0, 10**6)), min_size=1, max_size=20), st.data())
def test_the_heavy_aggregator_does_not_depend_on_how_records_are_split(
    records: list[tuple[str, int]], data: st.DataObject
) -> None:
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    times = [begin + timedelta(microseconds=offset) for _, offset in records]
    batch = pa.record_batch([pa.array([text for text, _ in records]), pa.array(times)], ["value", "at"])
    cut = data.draw(st.integers(0, len(records)))
    aggregator = NewestDigests()
    parts = [aggregator.update(aggregator.init(), part) for part in (batch[:cut], batch[cut:])]
    whole = aggregator.update(aggregator.init(), batch)
    assert aggregator.finish(aggregator.merge(*parts)) == whole
    assert (whole["n"], whole["latest"]) == (len(records), max(times))
