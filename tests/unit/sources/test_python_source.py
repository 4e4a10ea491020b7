"""Records that a class of the user's own reads: which classes a query can name, batches and slices, and what fails."""

from __future__ import annotations

import itertools
import pickle
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from millrace_api.errors import MillraceError, TransientError
from millrace_api.model.sources import SourceSpec
from millrace_api.model.status import FailureClass
from millrace_jobs.own_code.source_classes import SourceClass
from millrace_jobs.run.failures import class_of
from millrace_jobs.run.query_file import check_file
from millrace_jobs.sources.base import Source
from millrace_jobs.sources.connector import open_source
from millrace_jobs.sources.formats.format_reader import MAX_ROWS

MODULE = """
from __future__ import annotations
from collections.abc import Iterable, Iterator
import pyarrow as pa

class Numbers:
    '''The numbers from 0 on, of which every third is missing.'''
    end = 100

    def __init__(self, *, block: int = 7, returns: object = None, without: str = "", type: str = "int32") -> None:
        self.block, self.returns, self.without, self.type = block, returns, without, type

    def latest(self) -> int:
        return self.end if self.returns is None else self.returns

    def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        for begin in range(start, end, self.block):
            found = [n for n in range(begin, min(begin + self.block, end)) if n % 3]
            columns = {"N": pa.array(found).cast(self.type), "more": pa.nulls(len(found))}
            yield pa.RecordBatch.from_pydict({name: each for name, each in columns.items() if name != self.without})

class Once(Numbers):
    def latest(self) -> int:
        self.end = self.end + 50 if "end" in vars(self) else 100
        return self.end

class Inclusive(Numbers):
    def read(self, start: int, end: int) -> Iterable[pa.RecordBatch]:
        return [pa.RecordBatch.from_pydict({"n": range(start, end + 1)})]

class Tables(Numbers):
    def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        yield pa.table({"n": range(start, end)})

class Nothing(Numbers):
    def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        pass

class Fails(Numbers):
    def latest(self) -> int:
        raise ValueError("no such\\ntable")

    def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        yield from super().read(start, start + 1)
        raise KeyError("n")

class Away(Numbers):
    def latest(self) -> int:
        raise ConnectionError("refused")

    def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        raise TimeoutError("too slow")
        yield

class Ends(Numbers):
    def __init__(self) -> None:
        raise SystemExit(3)

class NoRead:
    def latest(self) -> int:
        return 0

class Bare(NoRead):
    def read(self, start, end):
        return iter([])

class Later(Numbers):
    async def latest(self) -> int:
        return 0

class LaterRecords(Numbers):
    async def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        yield

class FromText(Numbers):
    def read(self, start: str, end: str) -> Iterator[pa.RecordBatch]:
        return iter([])

def function(results: pa.Table) -> int:
    return 0
"""


@pytest.fixture(autouse=True, scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("module")
    (folder / "records_in_tests.py").write_text(MODULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.delitem(sys.modules, "records_in_tests", raising=False)
        yield folder


def spec(name: str, most: int | None = None, **options: Any) -> SourceSpec:
    python = {"read": f"records_in_tests:{name}", "options": options}
    python |= {} if most is None else {"maxRecordsPerBatch": most}
    return SourceSpec.model_validate({"python": python, "schema": "n BIGINT"})


def source(name: str = "Numbers", most: int | None = None, **options: Any) -> Source:
    """A source as a run opens it, after its way to another process."""
    found = open_source("t", spec(name, most, **options), Path("state"), Path("cache"))
    return pickle.loads(pickle.dumps(found))


def numbers(opened: Source, start: int, end: int, replicas: int = 1) -> list[list[int]]:
    """What each slice of a batch reads."""
    return [
        [n for batch in opened.read(piece, "0") for n in batch.column("n").to_pylist()]
        for piece in opened.slices({"offset": start}, {"offset": end}, replicas)
    ]


def refusal(name: str, call: str = "read", **options: Any) -> str:
    def attempt() -> None:
        opened = source(name, **options)
        if call == "read":
            numbers(opened, 20, 30)
        else:
            opened.latest({"offset": 20}, everything=False)

    with pytest.raises(MillraceError) as caught:
        attempt()
    return str(caught.value)


@given(
    ends=st.lists(st.integers(0, 200), max_size=5),
    replicas=st.lists(st.integers(1, 9), min_size=6, max_size=6),
    block=st.integers(1, 40),
)
def test_each_record_is_in_one_slice_of_one_batch_in_its_order(ends, replicas, block):
    opened = source(block=block)
    found = []
    for (start, end), count in zip(itertools.pairwise(sorted([0, *ends, 200])), replicas, strict=False):
        slices = numbers(opened, start, end, count)
        assert len(slices) == min(count, end - start)
        assert numbers(source(block=block), start, end, count) == slices
        found += list(itertools.chain(*slices))
    assert found == [n for n in range(200) if n % 3]


def test_slices_have_nearly_equal_ranges():
    pieces = source().slices({"offset": 5}, {"offset": 5 + 11}, 4)
    assert [piece.end - piece.begin for piece in pieces] == [2, 3, 3, 3]
    assert source().slices({"offset": 5}, {"offset": 5}, 4) == []


def test_batches_end_at_the_limits_and_the_rest_is_the_backlog():
    opened = source(most=30)
    assert opened.initial() == {"offset": 0}
    assert opened.latest({"offset": 0}, everything=False) == {"offset": 30}
    assert (opened.lag({"offset": 0}), opened.lag({"offset": 30})) == (100, 70)
    assert opened.latest({"offset": 30}, everything=False, most=5) == {"offset": 35}
    assert opened.latest({"offset": 90}, everything=False) == {"offset": 100}
    assert opened.most_records({"offset": 30}, {"offset": 35}) == 5


def test_a_stream_that_grows_is_read_to_where_it_first_went_with_everything():
    opened = source("Once", most=60)
    assert [opened.latest({"offset": k}, everything=True)["offset"] for k in (0, 60, 100)] == [60, 100, 100]
    opened = source("Once")
    assert [opened.latest({"offset": k}, everything=False)["offset"] for k in (0, 100)] == [100, 150]


def test_large_batches_are_cut_and_empty_ones_left_out():
    opened = source(block=3 * MAX_ROWS)
    (piece,) = opened.slices({"offset": 0}, {"offset": 3 * MAX_ROWS}, 1)
    assert [batch.num_rows for batch in opened.read(piece, "0")] == [MAX_ROWS, MAX_ROWS]
    assert numbers(source(block=1), 0, 4) == [[1, 2]]
    (piece,) = opened.slices({"offset": 0}, {"offset": 1}, 1)
    assert list(opened.read(piece, "0")) == []


@pytest.mark.parametrize("type", ["int32", "uint8", "float64", "decimal"])
def test_records_come_in_the_declared_types_and_columns(type):
    kind = pa.decimal128(20, 0) if type == "decimal" else type
    opened = source(type=kind)
    (piece,) = opened.slices({"offset": 0}, {"offset": 5}, 1)
    (batch,) = opened.read(piece, "0")
    assert batch.schema == pa.schema([("n", pa.int64())])
    assert batch.column("n").to_pylist() == [1, 2, 4]


@pytest.mark.parametrize(
    ("name", "call", "options", "said"),
    [
        ("NoRead", "", {}, "spec.sources.t.python.read: 'records_in_tests:NoRead' is no class that reads records: it has no method def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]; add it with these annotations, by def and without async"),
        ("Bare", "", {}, "'records_in_tests:Bare' is no class that reads records: it has no method def read("),
        ("FromText", "", {}, "it has no method def read("),
        ("Later", "", {}, "it has no method def latest(self) -> int; add it"),
        ("LaterRecords", "", {}, "it has no method def read("),
        ("Path", "", {}, "module 'records_in_tests' has no class 'Path'; write one of its classes: Away, Ends, Fails, Inclusive, Nothing, Numbers, Once, Tables"),
        ("function", "", {}, "module 'records_in_tests' has no class 'function'; write one of"),
        ("Numbers", "", {"blocks": 1}, "spec.sources.t.python.options: 'records_in_tests:Numbers' cannot be created with these options: got an unexpected keyword argument 'blocks'; correct the options, or the class, which takes block, returns, without, type"),
        ("Ends", "read", {}, "the class records_in_tests:Ends failed at __init__: SystemExit: 3 (records_in_tests.py, line 57); correct it, then run the same command again: nothing is lost"),
        ("Fails", "latest", {}, "spec.sources.t.python.read: the class records_in_tests:Fails failed at latest(): ValueError: no such table (records_in_tests.py, line 41); correct it"),
        ("Fails", "read", {}, "the class records_in_tests:Fails failed at read(20, 30): KeyError: 'n' (records_in_tests.py, line 45)"),
        ("Numbers", "latest", {"returns": 19}, "the class records_in_tests:Numbers returned 19 from latest(), and the query has come to offset 20; ask no copy that lags behind, restore"),
        ("Numbers", "latest", {"returns": -1}, "returned -1 from latest(); return the offset behind the last record, an int from 0 on"),
        ("Numbers", "latest", {"returns": 2**63}, "returned 9223372036854775808 from latest()"),
        ("Numbers", "latest", {"returns": 20.0}, "returned 20.0 from latest()"),
        ("Numbers", "latest", {"returns": True}, "returned True from latest()"),
        ("Inclusive", "read", {}, "yielded at least 11 records for 10 offsets from read(20, 30); yield one record for each offset at most, and none for the offset end"),
        ("Tables", "read", {}, "yielded Table from read(20, 30); yield pyarrow.RecordBatch; of a table, yield from table.to_batches()"),
        ("Nothing", "read", {}, "returned NoneType from read(20, 30); yield record batches of Arrow"),
        ("Numbers", "read", {"without": "N"}, "yielded records with no column n, but more; yield it, or correct the schema"),
        ("Numbers", "read", {"type": "string"}, "yielded records that do not fit the schema: column n (BIGINT): its type is STRING; yield values of Arrow's type int64, or correct the schema"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named(name: str, call: str, options: dict[str, Any], said: str) -> None:
    assert said in refusal(name, call, **options)


def test_a_value_that_does_not_fit_is_shown() -> None:
    opened = source(block=100)
    opened.schema = pa.schema([("n", pa.int8())])
    with pytest.raises(MillraceError, match=r"column n \(TINYINT\): 128 does not fit"):
        numbers(opened, 100, 200)


@pytest.mark.parametrize(("call", "said"), [("latest", "refused"), ("read", "too slow")])
def test_a_failed_connection_may_pass(call: str, said: str) -> None:
    opened = source("Away")
    with pytest.raises(TransientError, match=rf"{said} \(records_in_tests\.py, line \d+\); check what it connects to"):
        numbers(opened, 0, 1) if call == "read" else opened.latest({"offset": 0}, everything=False)


def test_a_class_that_cannot_be_used_is_an_error_of_the_users_code() -> None:
    for name, options in (("Bare", {}), ("Numbers", {"blocks": 1})):
        with pytest.raises(MillraceError) as caught:
            SourceClass("t", f"records_in_tests:{name}", options).imported()
        assert class_of(caught.value) is FailureClass.USER_CODE


def test_nothing_of_the_class_runs_before_a_batch_is_planned(tmp_path: Path) -> None:
    open_source("t", spec("Ends"), tmp_path, tmp_path)


def test_validate_loads_the_classes_of_all_sources(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("class Beside: pass\n")
    python = {"read": "records_in_tests:Numbers"}
    sources = {
        "t": {"python": python, "schema": "n BIGINT"},
        "u": {"python": {"read": "beside:Beside"}, "schema": "n INT"},
    }
    head = {"apiVersion": "millrace.io/v1alpha1", "kind": "StreamQuery", "metadata": {"name": "q"}}
    asked = {"sources": sources, "query": {"sql": "SELECT n FROM t"}, "sink": {"console": {}}}
    file = tmp_path / "query.yaml"
    file.write_text(yaml.safe_dump(head | {"spec": asked}))
    (problem,) = check_file(file)
    assert problem.field == "spec.sources.u.python.read"
    assert problem.message.startswith("'beside:Beside' is no class that reads records")
