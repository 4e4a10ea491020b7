"""The batches of a comparison: a later run goes from one end to the next, wherever it is."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.comparison.fixed_batches import BatchEnds, FirstSource, LaterSource, Positions
from millrace_jobs.sources.python.connector import PythonSource

ENDS = BatchEnds(({"a": {"n": 0}, "b": {"n": 0}}, {"a": {"n": 5}, "b": {"n": 0}}, {"a": {"n": 5}, "b": {"n": 3}}))


class Counted(PythonSource):
    """A stream of which so many offsets are known."""

    def __init__(self, name: str, known: int) -> None:
        self.name, self.schema, self._max_records = name, pa.schema([]), None
        self._known, self._has_all = known, True


def source(name: str = "a", known: int = 100) -> Counted:
    return Counted(name, known)


def checkpoint_at(folder: Path, *entries: dict[str, int]) -> Path:
    """A checkpoint with the positions of one batch after another in Spark's log."""
    (folder / "spark" / "offsets").mkdir(parents=True)
    for number, positions in enumerate(entries):
        lines = [json.dumps({"source": name, "position": {"n": place}}) for name, place in positions.items()]
        (folder / "spark" / "offsets" / str(number)).write_text("\n".join(["v1", "{}", *lines, "-"]), encoding="utf-8")
    return folder


def test_a_later_run_moves_the_sources_that_the_first_one_moved(tmp_path: Path) -> None:
    log = checkpoint_at(tmp_path, {"a": 5, "b": 0})
    assert LaterSource(source("a"), ENDS, log).latest({"n": 5}, everything=True) == {"n": 5}
    assert LaterSource(source("b"), ENDS, log).latest({"n": 0}, everything=True) == {"n": 3}


def test_a_later_run_begins_and_ends_where_the_first_one_did(tmp_path: Path) -> None:
    first = LaterSource(source("a"), ENDS, tmp_path)
    assert first.initial() == {"n": 0}
    assert first.latest({"n": 0}, everything=True) == {"n": 5}
    assert first.lag({"n": 0}) == 1
    last = LaterSource(source("b"), ENDS, checkpoint_at(tmp_path, {"a": 5}, {"a": 5, "b": 3}))
    assert last.latest({"n": 3}, everything=True) == {"n": 3}
    assert last.exhausted({"n": 3})
    assert last.lag({"n": 3}) == 0


def test_ends_are_stored_with_the_sources_that_have_no_offset_yet(tmp_path: Path) -> None:
    file = tmp_path / "ends"
    for positions in (ENDS.positions[0], {"a": {"n": 5}}, {"a": {"n": 5}}, {"b": {"n": 3}}):
        BatchEnds.add(file, positions)
    assert BatchEnds.read(file) == ENDS


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=8))
def test_every_end_leads_to_the_next_one(moves: list[tuple[int, int]]) -> None:
    positions: list[Positions] = [{"a": {"n": 0}, "b": {"n": 0}}]
    for a, b in moves:
        last = positions[-1]
        if a or b:
            positions.append({"a": {"n": last["a"]["n"] + a}, "b": {"n": last["b"]["n"] + b}})
    ends, at, taken = BatchEnds(tuple(positions)), positions[0], 0
    while (following := ends.after(at)) is not None:
        assert ends.remaining(at, "a") == sum(bool(a) for a, b in [m for m in moves if any(m)][taken:])
        at, taken = dict(following), taken + 1
    assert at == positions[-1]


@pytest.mark.parametrize("most", [None, 3, 1_000])
def test_the_first_run_reads_what_was_there_and_ends_early_when_it_has_enough(tmp_path: Path, most: int | None) -> None:
    first = FirstSource(source(known=10), 4, tmp_path / "enough")
    ends, at = [], {"offset": 0}
    while (end := first.latest(at, everything=True, most=most)) != at:
        at = dict(end)
        ends.append(at["offset"])
    assert ends == ([3, 6, 9, 10] if most == 3 else [4, 8, 10])
    (tmp_path / "enough").touch()
    assert first.latest({"offset": 4}, everything=True) == {"offset": 4}
