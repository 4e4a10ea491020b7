"""Which offsets a reader offers, and which tasks they make, above all at the end of an input."""

import json
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from millrace_jobs.pipeline.reader import FOLLOWED, MillraceStreamReader, ReaderConfig, SourceTask
from millrace_jobs.plan.control import Control, Pin, write_control
from millrace_jobs.sources.base import bounds

PIN = Pin(1, "hash", 2, 2)
BLOCKS = SourceTask("blocks", None)
AT_5 = {"source": "events", "position": {"row": 5}, "pin": PIN.to_json(), "waiting": 0, "behind": {}}


class Source:
    """Has so many rows."""

    schema = pa.schema([("who", pa.string()), ("at", pa.timestamp("us", tz="UTC"))])

    def __init__(self, rows):
        self._rows = rows

    def initial(self):
        return {"row": 0}

    def latest(self, start, *, everything, most):
        return {"row": self._rows}

    def lag(self, position):
        return self._rows - position["row"]

    def longest_lags(self, position):
        lag = self._rows - position["row"]
        return {"events-0": lag} if lag else {}

    def placed_under(self, end):
        return None

    def most_records(self, start, end):
        return end["row"] - start["row"]

    def slices(self, start, end, replicas):
        cuts = bounds(end["row"] - start["row"], replicas)
        return [(start["row"] + low, start["row"] + high) for low, high in pairwise(cuts) if low < high]


@pytest.fixture
def reader(tmp_path):
    """Makes the reader of a source, and tells it what the driver wants."""
    offsets = tmp_path / "spark" / "offsets"
    offsets.mkdir(parents=True)
    for batch, watermark in enumerate([0, 30, 70]):
        (offsets / str(batch)).write_text(f'v1\n{{"batchWatermarkMs": {watermark}}}\n-', encoding="utf-8")

    def make(rows, task=None, **control):
        file = tmp_path / "control.json"
        write_control(file, Control(PIN, **control))
        places = (file, tmp_path / "spark", tmp_path / "policies")
        return MillraceStreamReader(
            ReaderConfig("events", Source(rows), task or BLOCKS, None, *places, everything=True)
        )

    return make


def latest(reader, start):
    return reader.latestOffset(start, ReadAllAvailable())


def test_new_records_make_a_batch_which_is_not_the_end(reader):
    end = latest(reader(7), AT_5 | {"closed": 100})
    assert end == AT_5 | {"position": {"row": 7}, "taken": 2}
    assert [replica.piece for replica in reader(7).partitions(AT_5 | {"closed": 100}, end)] == [(5, 6), (6, 7)]


@pytest.mark.parametrize(("rows", "slices"), [(6, 1), (8, 1), (10, 1), (11, 2), (14, 2), (1005, 2)])
def test_a_batch_of_few_records_is_read_in_fewer_slices_where_that_is_wanted(reader, rows, slices):
    planned = reader(rows, SourceTask("rows", None, slice_records=3))
    replicas = planned.partitions(AT_5, latest(planned, AT_5))
    assert [replica.index for replica in replicas] == list(range(slices))
    assert (replicas[0].piece[0], replicas[-1].piece[1]) == (5, rows)


@pytest.mark.parametrize(("own_watermark", "expected"), [(False, 30_000), (True, 70_000)])
def test_replicas_count_what_is_late_for_the_operator_that_merges(reader, own_watermark, expected):
    planned = reader(7, SourceTask("blocks", None, own_watermark=own_watermark))
    replicas = planned.partitions(AT_5, latest(planned, AT_5))
    assert {(replica.batch, replica.watermark) for replica in replicas} == {(2, expected)}


def test_where_nothing_is_new_or_wanted_there_is_no_batch(reader):
    for start in (AT_5, AT_5 | {"closed": 100}):
        assert latest(reader(5), start) == start
        assert latest(reader(7, draining=True), start) == start
        assert latest(reader(7, held=("events",)), start) == start
        assert latest(reader(7, draining=True, closing_time=200), start) == start
        assert reader(5).partitions(start, start) == []


def test_a_source_reads_while_another_one_is_held(reader):
    assert latest(reader(7, held=("others",)), AT_5)["position"] == {"row": 7}


def test_the_end_of_an_input_reads_no_record_that_came_later(reader):
    end = latest(reader(7, closing_time=100), AT_5)
    assert end == AT_5 | {"closed": 100}
    (replica,) = reader(7).partitions(AT_5, end)
    assert (replica.piece, replica.closing_time) == (None, 100)
    assert latest(reader(7, closing_time=100), end) == end


def test_another_closing_time_ends_the_input_again(reader):
    start = AT_5 | {"closed": 100}
    end = latest(reader(5, closing_time=1100), start)
    assert end == AT_5 | {"closed": 1100}
    (replica,) = reader(5).partitions(start, end)
    assert replica.closing_time == 1100


def test_a_source_without_a_record_ends_too(reader):
    start = reader(0).initialOffset()
    end = latest(reader(0, closing_time=100), start)
    assert end["position"] == {"row": 0}
    assert [replica.closing_time for replica in reader(0).partitions(start, end)] == [100]


def test_the_closing_time_is_in_the_column_of_the_watermark_whatever_the_case_of_its_name(reader):
    closing = reader(5, SourceTask("rows", "AT"), closing_time=100)
    (replica,) = closing.partitions(AT_5, latest(closing, AT_5))
    *_, last = closing.read(replica)
    assert last.column("at").cast(pa.int64()).to_pylist() == [100]


def test_a_run_that_follows_another_has_its_batches_even_without_records(reader, tmp_path):
    followed = tmp_path / "followed" / "offsets"
    followed.mkdir(parents=True)
    for batch, row in enumerate([5, 5, 7]):
        lines = ["v1", "{}", "-", json.dumps({"source": "other"}), json.dumps(AT_5 | {"position": {"row": row}})]
        (followed / str(batch)).write_text("\n".join(lines), encoding="utf-8")
    commits = tmp_path / "spark" / "commits"
    commits.mkdir()
    made = reader(100)
    follower = MillraceStreamReader(replace(made._config, followed=followed.parent))
    (tmp_path / "control.json").write_text("1", encoding="utf-8")  # the last batch to repeat
    offsets = [AT_5]
    for batch in (1, 2):
        (commits / str(batch)).touch()
        offsets.append(latest(follower, offsets[-1]))
    assert offsets[1] == AT_5 | {FOLLOWED: 1}  # another offset, and no record
    assert follower.partitions(offsets[0], offsets[1]) == []
    assert offsets[2] == offsets[1]
    (tmp_path / "control.json").write_text("2", encoding="utf-8")
    last = latest(follower, offsets[1])
    assert last == AT_5 | {"position": {"row": 7}, FOLLOWED: 2}
    assert [replica.piece for replica in follower.partitions(offsets[1], last)] == [(5, 6), (6, 7)]
    assert FOLLOWED not in latest(reader(100), last)  # the run goes on by itself
