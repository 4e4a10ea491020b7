"""Odd files of text give the rows that were meant, however they are cut, or one sentence."""

from datetime import datetime

import pyarrow as pa
import pytest

from millrace_api.errors import MillraceError
from millrace_jobs.sources.files.source import FilesSource
from millrace_jobs.sources.formats.column_types import declared_schema
from unit.sources.odd_texts import KINDS


def rows_of(source, replicas):
    start = source.initial()
    slices = source.slices(start, source.latest(start, everything=True), replicas)
    batches = [batch for piece in slices for batch in source.read(piece, "0")]
    return [tuple(row.values()) for row in pa.Table.from_batches(batches, source.schema).to_pylist()]


def exactly(rows):
    """The rows in a form in which -0.0 is not 0.0, and NaN is NaN."""
    return [[value.timestamp() if isinstance(value, datetime) else repr(value) for value in row] for row in rows]


@pytest.mark.parametrize("kind", KINDS)
def test_odd_files_give_their_rows_or_one_sentence(kind, tmp_path):
    cases = list(KINDS[kind](tmp_path))
    assert len(cases) >= 20
    assert len({case.name for case in cases}) == len(cases)
    for number, case in enumerate(cases):
        file = tmp_path / f"{number}" / f"f.{case.format}"
        file.parent.mkdir()
        file.write_bytes(case.data)
        for replicas in (1, 2, 5):
            source = FilesSource(
                "s",
                str(file),
                case.format,
                declared_schema(case.schema),
                str(file.parent / f"log{replicas}"),
                **case.options,
            )
            if case.rows is not None:
                assert exactly(rows_of(source, replicas)) == exactly(case.rows), case.name
                continue
            with pytest.raises(MillraceError) as raised:
                rows_of(source, replicas)
            (problem,) = raised.value.problems
            assert problem.file == str(file), case.name
            assert "\n" not in str(problem), case.name
            assert case.said in str(problem), case.name
