import json
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.partitioners import registry
from millrace_jobs.partitioners.key_hashes import hash_columns
from millrace_jobs.pipeline.blocks import decode
from millrace_jobs.pipeline.projection import KEEP, SparkProjection
from millrace_jobs.pipeline.route import CONTROL, Router, SparkRouteTask
from millrace_jobs.plan.control import Pin
from millrace_jobs.plan.policies import state_of
from millrace_jobs.windows import Window

SCHEMA = pa.schema([("k0", pa.string()), ("at", pa.timestamp("us", tz="UTC")), ("row", pa.int64())])
PINS = [
    Pin(1, "hash", 3, 4),
    Pin(2, "shuffle", 3, 5),
    Pin(3, "pkg", 3, 7, {"choices": 2}),
    Pin(4, "pkg", 3, 1, {}),
    *[Pin(5, name, 3, 7) for name in registry.ALGORITHMS if name not in ("native", "hash", "shuffle", "pkg")],
]
RECORDS = st.lists(st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(-100, 100)), max_size=40)


def same(batch):
    return batch


def by_pin(test):
    return pytest.mark.parametrize("pin", PINS, ids=[f"{pin.algorithm}-{pin.workers}" for pin in PINS])(test)


def batch_of(records, first=0):
    return pa.RecordBatch.from_pylist(
        [{"k0": key, "at": at, "row": first + i} for i, (key, at) in enumerate(records)], schema=SCHEMA
    )


def batches_of(records, cuts):
    """The records in batches that end at ``cuts``; some may be empty."""
    ends = sorted(min(cut, len(records)) for cut in cuts)
    return [batch_of(records[a:b], a) for a, b in zip([0, *ends], [*ends, len(records)], strict=True)]


def run(router, batches, pin, replica=0, watermark=0, state=None):
    """What a router yields, and what it returns."""
    stream, cuts = router(batches, pin, replica, watermark, state), []
    while True:
        try:
            cuts.append(next(stream))
        except StopIteration as done:
            return cuts, done.value


def placed(cuts):
    """Worker of each row."""
    return {
        row: worker
        for cut in cuts
        for worker, block in decode(cut, SCHEMA)
        if isinstance(block, pa.RecordBatch)
        for row in block.column("row").to_pylist()
    }


@by_pin
@given(records=RECORDS, cuts=st.lists(st.integers(0, 40), max_size=4))
def test_a_retried_task_does_the_same_again(pin, records, cuts):
    router = Router(same, 1, None)
    first, said = run(router, batches_of(records, cuts), pin, replica=1)
    again, repeated = run(router, batches_of(records, cuts), pin, replica=1)
    assert [cut.to_pylist() for cut in first] == [cut.to_pylist() for cut in again]
    untimed = {"seconds": 0, "reading": 0}
    assert said | untimed == repeated | untimed


@by_pin
@given(records=RECORDS, cuts=st.lists(st.integers(0, 40), max_size=4))
def test_how_the_slice_comes_in_batches_does_not_matter(pin, records, cuts):
    router = Router(same, 1, None)
    (apart, _), (at_once, said) = run(router, batches_of(records, cuts), pin), run(router, [batch_of(records)], pin)
    assert placed(apart) == placed(at_once)
    assert placed(apart).keys() == set(range(len(records)))
    assert set(placed(apart).values()) <= set(range(pin.workers))
    assert (said["read"], said["routed"], said["epoch"]) == (len(records), len(records), pin.epoch)


@by_pin
@given(records=RECORDS)
def test_a_batch_begins_with_what_its_replica_learned_before(pin, records):
    """As a partitioner does that never stopped: same placements, and the same state in the end."""
    router = Router(same, 1, None)
    _, before = run(router, [batch_of(records)], pin, replica=1)
    cuts, after = run(router, [batch_of(records)], pin, replica=1, state=state_of(before["state"]))
    going_on = registry.make(
        pin.algorithm, workers=pin.workers, replica=1, replicas=3, seed=pin.seed, parameters=pin.parameters
    )
    hashes = hash_columns(batch_of(records).columns[:1], len(records))
    for _ in range(2):
        ids = going_on.route(hashes)
        going_on.advance()
    assert placed(cuts) == dict(enumerate(ids.tolist()))
    assert state_of(after["state"]) == going_on.save()


def test_hash_keeps_a_key_together_over_all_replicas():
    records = [(key, 0) for key in ("a", "b", "c", None) * 10]
    workers = {}
    for replica in range(3):
        for row, worker in placed(run(Router(same, 1, None), [batch_of(records)], PINS[0], replica)[0]).items():
            assert workers.setdefault(records[row][0], worker) == worker


def test_the_seed_is_part_of_the_plan():
    records = [(f"key {i}", 0) for i in range(200)]
    one, other = (
        placed(run(Router(same, 1, None), [batch_of(records)], replace(PINS[0], seed=seed))[0]) for seed in (0, 1)
    )
    assert one != other


@given(RECORDS, st.integers(1, 30), st.integers(1, 30), st.integers(1, 60))
def test_late_is_a_record_whose_windows_have_all_ended(records, size, slide, watermark):
    window = Window("at", max(size, slide), slide)
    starts = range(-200, 200)
    late = sum(
        all(
            start + window.size <= watermark for start in starts if start % slide == 0 and 0 <= at - start < window.size
        )
        for _, at in records
    )
    assert run(Router(same, 1, window), batches_of(records, [7]), PINS[0], watermark=watermark)[1]["late"] == late


def test_without_window_or_watermark_nothing_is_late():
    records = [("a", 1), ("b", 2)]
    assert run(Router(same, 1, None), [batch_of(records)], PINS[0], watermark=10**9)[1]["late"] == 0
    assert run(Router(same, 1, Window("at", 1, 1)), [batch_of(records)], PINS[0], watermark=0)[1]["late"] == 0


def test_windows_that_ended_by_1970_are_late_for_sparks_merge_whose_watermark_begins_there():
    router = Router(same, 1, Window("at", 10, 10), "at", since_epoch=True)
    said = run(router, [batch_of([("a", -11), ("a", -1), ("a", 0)])], PINS[0], watermark=0)[1]
    assert (said["late"], said["earliest"], said["latest"]) == (2, -11, 0)


def test_what_the_filter_leaves_out_is_read_but_not_routed():
    def only_a(batch):
        return batch.filter(pc.equal(batch.column("k0"), "a"))

    cuts, said = run(Router(only_a, 1, None), [batch_of([("a", 1), ("b", 2), ("b", 3)]), batch_of([("b", 4)])], PINS[0])
    assert (said["read"], said["routed"], len(cuts)) == (4, 1, 1)


def test_the_latest_event_time_is_told_also_of_what_is_filtered_out():
    def nothing(batch):
        return batch.slice(0, 0)

    batches = [batch_of([("a", 5), ("b", 9)]), batch_of([("b", 7)]), batch_of([])]
    assert run(Router(nothing, 1, Window("at", 1, 1), "at"), batches, PINS[0])[1]["latest"] == 9
    assert "latest" not in run(Router(nothing, 1, Window("at", 1, 1), "at"), [batch_of([])], PINS[0])[1]
    assert "latest" not in run(Router(nothing, 1, None), batches, PINS[0])[1]


PIN = PINS[2]
FIRST = {"pin": PIN.to_json(), "replica": 2, "rejected": 0, "watermark": 20}
LAST = {"read": 41, "epoch": PIN.epoch, "replica": 2, "rejected": 3, "watermark": 20}


def spark_rows(records, cuts):
    """A slice as Spark projects it: the records between two rows of control, in batches that end anywhere."""
    rows = [{KEEP: False, CONTROL: json.dumps(FIRST)}]
    rows += [{"k0": k, "at": at, "row": i, KEEP: i % 3 != 0, CONTROL: None} for i, (k, at) in enumerate(records)]
    rows.append({KEEP: False, CONTROL: json.dumps(LAST)})
    schema = SCHEMA.append(pa.field(KEEP, pa.bool_())).append(pa.field(CONTROL, pa.string()))
    ends = sorted({min(1 + cut, len(rows)) for cut in cuts} | {len(rows)})
    return [pa.RecordBatch.from_pylist(rows[a:b], schema=schema) for a, b in zip([0, *ends], ends, strict=False)]


@given(RECORDS, st.lists(st.integers(0, 42), max_size=5))
def test_control_rows_may_be_in_any_batch(records, cuts):
    task = SparkRouteTask(Router(SparkProjection(SCHEMA), 1, Window("at", 10, 10)))
    *routed, last = task(spark_rows(records, cuts))
    kept = [(i, record) for i, record in enumerate(records) if i % 3]
    plain = batch_of(records).filter(pa.array([i % 3 != 0 for i in range(len(records))], pa.bool_()))
    expected, expected_note = run(Router(same, 1, None), [plain], PIN, replica=2)
    assert placed(routed) == placed(expected)
    ((worker, said),) = decode(last, SCHEMA)
    assert worker == 0
    assert said.pop("seconds") >= 0
    assert said.pop("reading") >= 0
    assert said.pop("bytes") >= 0
    assert (said.pop("sent") > 0) == bool(kept)
    assert state_of(said.pop("state")) == state_of(expected_note["state"])
    late = sum((at // 10 + 1) * 10 <= 20 for _, (_, at) in kept)
    assert said == LAST | {"routed": len(kept), "late": late}


def test_no_rows_at_all_are_no_replica():
    assert list(SparkRouteTask(Router(SparkProjection(SCHEMA), 1, None))(iter([]))) == []
