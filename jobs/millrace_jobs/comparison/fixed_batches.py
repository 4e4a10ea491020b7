"""The batches of a comparison: the first run decides where each one ends, and every later run has the same ones.

A position means something to its own source alone, so no end can be set by a number of records. Instead, the positions
of all sources after each batch of the first run are the ends of its batches. A later run, with what the sources of the
first one remember, goes from one of them to the next. So it has the same records in the same batches, the same
watermarks, and the same late records, unless the query asks for others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from millrace_jobs.checkpoint.object_lease import spark_place
from millrace_jobs.plan.log_entries import LogEntries
from millrace_jobs.sources.base import Position, Source
from millrace_jobs.sources.wrapped import WrappedSource

BATCHES = 16
"""Batches that the records of a comparison are divided into, as far as the sources can: their times are compared."""

LEAST_RECORDS = 1_000
"""Records of a batch: of fewer, its time would say nothing of the query."""

Positions = Mapping[str, Position]
"""The position of each source, by its name."""


@dataclass(frozen=True)
class BatchEnds:
    """The positions before the first batch, and after each batch that moved a source; stored as JSON lines."""

    positions: tuple[Positions, ...]

    @classmethod
    def read(cls, file: Path) -> Self:
        """Return the ends in a file; a repeated batch has one."""
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        return cls(tuple(line for place, line in enumerate(lines) if not place or line != lines[place - 1]))

    @staticmethod
    def add(file: Path, positions: Positions) -> None:
        """Add positions to a file. Sources without an offset so far are where they were."""
        before: Positions = {}
        if file.exists():
            before = json.loads(file.read_text(encoding="utf-8").splitlines()[-1])
        with file.open("a", encoding="utf-8") as out:
            out.write(json.dumps({**before, **positions}) + "\n")

    def after(self, positions: Positions) -> Positions | None:
        """Return the next positions; None behind the last ones, and behind others than these."""
        found = {**self.positions[0], **positions}
        for place, each in enumerate(self.positions[:-1]):
            if each == found:
                return self.positions[place + 1]
        return None

    def remaining(self, positions: Positions, source: str) -> int:
        """Return how often a source still moves behind these positions."""
        found, last, count = {**self.positions[0], **positions}, None, 0
        for each in self.positions:
            count += last is not None and each[source] != last[source]
            last = each if last is not None or each == found else None
        return count


class FirstSource(WrappedSource):
    """A source of the first run: it ends where the source ended when the run began, or when ``enough`` exists.

    Args:
        source: the source.
        most: the maximum number of records in a batch.
        enough: the file that ends the run.
    """

    def __init__(self, source: Source, most: int, enough: Path) -> None:
        super().__init__(source)
        self._most, self._enough = most, enough

    def latest(self, start: Position, *, everything: bool, most: int | None = None) -> Position:
        """Return the end of the next batch."""
        if self._enough.exists():
            return start
        return self.source.latest(start, everything=True, most=min(self._most, most or self._most))


class LaterSource(WrappedSource):
    """A source of a later run, which goes from one end of a batch to the next.

    Args:
        source: the source.
        ends: where the batches of the first run ended.
        checkpoint: the folder of the later run, whose log has the positions that all its sources have reached. The log
            has another place once the state is rewritten for the version.
    """

    def __init__(self, source: Source, ends: BatchEnds, checkpoint: Path) -> None:
        super().__init__(source)
        self._ends, self._checkpoint = ends, checkpoint

    def initial(self) -> Position:
        """Return where the first run began."""
        return self._ends.positions[0][self.name]

    def latest(self, start: Position, *, everything: bool, most: int | None = None) -> Position:
        """Return where the batch of the first run ended."""
        following = self._ends.after(self._reached())
        return start if following is None else following[self.name]

    def lag(self, position: Position) -> int:
        """Return in how many batches the source still has records: a unit that is known."""
        return self._ends.remaining(self._reached(), self.name)

    def exhausted(self, position: Position) -> bool:
        """Return whether the last batch has ended."""
        return self._ends.after(self._reached()) is None

    def _reached(self) -> Positions:
        log = LogEntries(spark_place(self._checkpoint))
        newest = log.newest("offsets")
        if newest is None:
            return {}
        lines = log.text("offsets", newest).splitlines()[2:]
        return positions_in(json.loads(line) for line in lines if line != "-")


def positions_in(offsets: Iterator[Mapping[str, Any]] | Sequence[Mapping[str, Any]]) -> dict[str, Position]:
    """Return the position of each source, from the offsets of a batch."""
    return {offset["source"]: offset["position"] for offset in offsets}
