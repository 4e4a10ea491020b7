"""A source around another one, for runs that choose the batches otherwise than its own clock and limits do."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from millrace_jobs.sources.base import OnArrival, PlacedSlice, Position, Rejected, Slice, Source, ignore_arrivals


class WrappedSource(Source):
    """A source of which only the positions are chosen otherwise."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.name = source.name
        self.schema = source.schema

    def check_server(self) -> None:
        """Ask the server of the source."""
        self.source.check_server()

    def initial(self) -> Position:
        """Return the position before the first record."""
        return self.source.initial()

    def lag(self, position: Position) -> int:
        """Return the backlog beyond a position."""
        return self.source.lag(position)

    def exhausted(self, position: Position) -> bool:
        """Return whether the source has ended."""
        return self.source.exhausted(position)

    def slices(self, start: Position, end: Position, replicas: int) -> list[Slice]:
        """Cut the records of a batch into slices."""
        return self.source.slices(start, end, replicas)

    def most_records(self, start: Position, end: Position) -> int | None:
        """Return how many records are in a range at most."""
        return self.source.most_records(start, end)

    def placed_blocks(self, piece: PlacedSlice) -> Iterator[bytes]:
        """Return the blocks of a slice of placed records."""
        return self.source.placed_blocks(piece)

    def read(
        self, piece: Slice, label: str, on_arrival: OnArrival = ignore_arrivals
    ) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield the records of a slice."""
        return self.source.read(piece, label, on_arrival)
