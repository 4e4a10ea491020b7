"""Files of a real checkpoint that were cut, emptied, changed or lost: a sentence that names the file, and no result."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from millrace_api.errors import MillraceError
from millrace_jobs.checkpoint.checkpoint import checkpoint_root

from .answers import assert_same, duckdb_rows, latest
from .streams import Placing, Stream
from .tables import parquet, table_of

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("key", pa.string()), ("value", pa.int64())])
SQL = "SELECT key, count(*) AS records, sum(value) AS total FROM events GROUP BY key"
PLACING: Placing = ("hash", 2, 2)
BATCHES = [[(f"key {n % 7}", n) for n in range(start, start + 40)] for start in (0, 40, 80)]


def cut(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def change(path: Path) -> None:
    """One bit, in a place where the text stays one that can be read."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def empty(path: Path) -> None:
    path.write_bytes(b"")


DAMAGES: list[tuple[str, Callable[[Path], None]]] = [
    ("offsets/1", change),
    ("offsets/1", empty),
    ("commits/1", cut),
    ("metadata", change),
    ("state/0/0/2.changelog", cut),
    ("state/0/0/2.changelog", change),
    ("state/0/0/2.changelog", Path.unlink),
]


def test_what_is_damaged_is_named_and_the_whole_checkpoint_put_back_goes_on(spark, tmp_path):
    stream = Stream(spark, tmp_path, schema="key STRING, value BIGINT", sql=SQL)
    stream.feed([(PLACING, parquet(SCHEMA, batch)) for batch in BATCHES[:2]])
    root = checkpoint_root(stream.query)
    shutil.copytree(root, tmp_path / "copy")
    inbox, results = set((tmp_path / "inbox").iterdir()), stream.results()

    for name, damage in DAMAGES:
        shutil.rmtree(root)
        shutil.copytree(tmp_path / "copy", root)
        damage(root / "spark" / name)
        with pytest.raises(MillraceError) as raised:
            stream.feed([(PLACING, parquet(SCHEMA, BATCHES[2]))])
        (problem,) = raised.value.problems
        assert problem.message.startswith(f"the checkpoint is damaged: {root / 'spark' / name}: "), problem
        assert problem.hint.startswith("put back a copy of the whole checkpoint, or ")
        assert stream.results() == results
        for file in set((tmp_path / "inbox").iterdir()) - inbox:
            file.unlink()

    shutil.rmtree(root)
    shutil.copytree(tmp_path / "copy", root)
    stream.feed([(PLACING, parquet(SCHEMA, BATCHES[2]))])
    everything = table_of(SCHEMA, [row for batch in BATCHES for row in batch])
    expected = duckdb_rows(everything, "SELECT key, count(*), sum(value) FROM events GROUP BY key")
    assert_same(latest(stream.results(), 1), expected, 1)
