"""Evolving tables and their duality with changelogs (definitions 11, 18 to 20, 55 to 58 and 65)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .streams import Key, Record, Stream, StreamRecord, Time, stream

Table = dict[Key, Record]
"""One version of a table: its records by key (definition 11)."""


class EvolvingTable:
    """A table with a version for each time at which it was updated, and their modified keys (definitions 56 and 57).

    The paper has a version for every time up to the last. Those without an update equal the version before, so that here
    only versions with modified keys are stored. ``generation`` counts the updates.
    """

    def __init__(self, updates: Iterable[Record | StreamRecord] = ()) -> None:
        self.generation = 0
        self._versions: dict[Time, Table] = {}
        self._modified: dict[Time, set[Key]] = {}
        for update in updates:
            self.update(Record(update.t, update.k, update.v))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EvolvingTable) and (self._versions, self._modified) == (
            other._versions,
            other._modified,
        )

    def __repr__(self) -> str:
        return "\n".join(f"T[{time}] K={self.modified(time)} {self.values(time)}" for time in self.times)

    @property
    def times(self) -> list[Time]:
        """The times of the versions that have modified keys."""
        return sorted(self._versions)

    def at(self, time: Time) -> Table:
        """Return the version at a time."""
        before = [each for each in self.times if each <= time]
        return dict(self._versions[before[-1]]) if before else {}

    @property
    def latest(self) -> Table:
        """The version of the last time."""
        return self.at(self.times[-1]) if self._versions else {}

    def values(self, time: Time) -> dict[Key, Any]:
        """Return the values of the version at a time, by key."""
        return {key: record.v for key, record in self.at(time).items()}

    def modified(self, time: Time) -> set[Key]:
        """Return the keys that were modified at a time (definition 57)."""
        return set(self._modified.get(time, ()))

    def lookup(self, key: Key, time: Time | None = None) -> Record | None:
        """Return the record of a key in the version at a time, or in the last one (definitions 18 and 65)."""
        return (self.latest if time is None else self.at(time)).get(key)

    def update(self, update: Record) -> None:
        """Apply an update to the version of its time, and to later ones up to the next update of its key (definition 58)."""
        time, key, _ = update
        if time not in self._versions:
            self._versions[time] = self.at(time)
            self._modified[time] = set()
        for version in self.times:
            between = [each for each in self.times if time < each <= version]
            if version == time or (version > time and all(key not in self._modified[each] for each in between)):
                if update.v is None:
                    self._versions[version].pop(key, None)
                else:
                    self._versions[version][key] = update
        self._modified[time].add(key)
        self.generation += 1

    @property
    def changelog(self) -> Stream:
        """The ordered changelog of this table: one update per modified key of each version (figure 5.2)."""
        return stream(
            Record(time, key, None if (found := self.lookup(key, time)) is None else found.v)
            for time in self.times
            for key in sorted(self._modified[time], key=repr)
        )


def table_of(changelog: Stream) -> EvolvingTable:
    """Return the table that a changelog describes, whatever the order of its records (definition 55)."""
    return EvolvingTable(changelog)
