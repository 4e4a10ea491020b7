"""Static tables that are read in the background, and the content that each batch has of them.

A thread for each table reads it at the start and then on its schedule, and stores what has changed in the checkpoint.
The newest contents go to the sources with the plan of the next batch, and into its offsets from there. So a batch has
the contents that were the newest when it was planned, also if it is repeated by another driver.
"""

from __future__ import annotations

import hashlib
import json
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path

import pyarrow as pa

from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_api.model.sources import SourceSpec
from millrace_api.model.status import FailureClass
from millrace_api.model.streamquery import Spec
from millrace_api.model.tables import TableSpec
from millrace_jobs.places import Place
from millrace_jobs.run.failures import attributed_to
from millrace_jobs.sources.connector import open_table, schema_of
from millrace_jobs.sources.static_tables import (
    StaticTable,
    TableContent,
    TableContents,
    TableLimits,
    WholeTable,
    static_table,
)
from millrace_support.backoff import Backoff

PATIENCE = 45.0
"""Seconds for which the first read of a table is repeated while its error is transient, in a run of a query."""

_RETRY_SECONDS = 5.0
"""Pause after the first refresh that has failed; it grows up to the time between two refreshes."""

_OF_REFRESH = ("refreshEvery", "maxRows", "maxSize")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TableState:
    """A table as metrics show it.

    Attributes:
        rows: rows of the newest content.
        current_at: when the table was last read, or found unchanged, in seconds since 1970.
        failures: reads that have failed.
        interval: seconds between two refreshes; None for a table that is read at the start only.
    """

    rows: int
    current_at: float
    failures: int
    interval: float | None = None


class RefreshedTables:
    """The static tables of a query whose contents a checkpoint has.

    Args:
        spec: the spec of the query.
        place: where the contents of all tables are.
        workspace: folder for what a source needs while it reads.
        oldest: returns the contents of the oldest batch that may be repeated; None if they are not known.
        patience: seconds for which the first read of a table is repeated while its error is transient.
    """

    def __init__(
        self,
        spec: Spec,
        place: Place,
        workspace: Path,
        oldest: Callable[[], Mapping[str, str] | None],
        patience: float = PATIENCE,
    ) -> None:
        self._messages: queue.SimpleQueue[str] = queue.SimpleQueue()
        say = self._messages.put
        self._tables = {
            name: _RefreshedTable(name, source, source.table, place / name, workspace, say, oldest, patience)
            for name, source in spec.sources.items()
            if source.table is not None and source.has_contents
        }

    def __bool__(self) -> bool:
        return bool(self._tables)

    def begin(self) -> None:
        """Begin to read all tables in the background."""
        for table in self._tables.values():
            table.start()

    def wait(self, stopped: Callable[[], bool]) -> None:
        """Wait until each table has a content, or ``stopped`` returns True.

        Raises:
            MillraceError: a table cannot be read, and has no content that can be used instead.
        """
        for table in self._tables.values():
            while not table.ready.wait(0.1):
                if stopped():
                    return
            if table.error is not None:
                raise table.error

    def tables(self) -> Mapping[str, tuple[pa.Schema, Place, int]]:
        """Return the columns of each table, the place of its contents, and the size of the newest one in bytes."""
        return {name: (table.schema, table.place, table.current.size) for name, table in self._tables.items()}

    def newest(self) -> Mapping[str, str]:
        """Return the newest content of each table, which the next batch is to have."""
        return {name: table.current.name for name, table in self._tables.items()}

    def for_batch(self, pinned: Mapping[str, str]) -> Mapping[str, str]:
        """Return the content of each table in a batch, whose offsets name some of them."""
        return {name: table.use(pinned.get(name)) for name, table in self._tables.items()}

    def messages(self) -> list[str]:
        """Return what there is to say since the last call."""
        found = []
        with suppress(queue.Empty):
            while True:
                found.append(self._messages.get_nowait())
        return found

    def states(self) -> Mapping[str, TableState]:
        """Return the state of each table."""
        return {name: table.state() for name, table in self._tables.items() if table.ready.is_set() and not table.error}

    def close(self) -> None:
        """End the refreshes; one that is under way ends by itself, without an effect."""
        for table in self._tables.values():
            table.closed.set()


class _RefreshedTable(threading.Thread):
    """One table, and the thread that reads it."""

    def __init__(
        self,
        name: str,
        source: SourceSpec,
        table: TableSpec,
        place: Place,
        workspace: Path,
        say: Callable[[str], None],
        oldest: Callable[[], Mapping[str, str] | None],
        patience: float,
    ) -> None:
        super().__init__(name=f"refresh of {name}", daemon=True)
        self.schema, self.place = schema_of(source), place
        self.ready, self.closed = threading.Event(), threading.Event()
        self.error: Exception | None = None
        self._source, self._table = source, table
        self._workspace, self._say, self._oldest = workspace, say, oldest
        self._patience = patience
        self._contents = TableContents(place)
        self._origin = _origin(source)
        self._opened: WholeTable | None = None
        self._current: TableContent | None = None
        self._current_at = 0.0
        self._failures = 0
        self._said = ""
        self._used: set[str] = set()
        self._unused: list[str] = []

    @property
    def current(self) -> TableContent:
        """The newest content."""
        assert self._current is not None, "the table was not read yet"
        return self._current

    def state(self) -> TableState:
        """Return the state as metrics show it."""
        every = self._table.refresh_every
        interval = None if every is None else every.seconds
        return TableState(self.current.rows, self._current_at, self._failures, interval)

    def use(self, pinned: str | None) -> str:
        """Return the content for a batch; the newest one unless the batch has the ``pinned`` one from before."""
        if pinned is None or not self._fits(pinned):
            pinned = self.current.name
        self._used.add(pinned)
        return pinned

    def run(self) -> None:
        """Read the table, first so that there is a content, then on schedule."""
        try:
            self._read_first()
        except Exception as error:  # the thread that waits raises it
            self.error = error
            return
        finally:
            self.ready.set()
        if self._table.refresh_every is not None:
            self._follow(self._table.refresh_every.seconds)

    def _read_first(self) -> None:
        known = self._known()
        backoff, deadline = Backoff(0.5, 5.0), time.monotonic() + self._patience
        while True:
            try:
                with attributed_to(FailureClass.SOURCE):
                    return self._refresh(known)
            except MillraceError as error:
                if known is not None and self._table.refresh_every is not None:
                    self._current, self._current_at = known, known.read_at
                    return self._failed(error)
                pause = backoff.next()
                if not isinstance(error, TransientError) or time.monotonic() + pause > deadline:
                    raise
            if self.closed.wait(pause):
                return None

    def _known(self) -> TableContent | None:
        """Return the newest content of an earlier run that was read from what the query reads now."""
        try:
            known = self._contents.newest()
        except (OSError, ValueError, TypeError) as error:
            log.warning("the description of a content in %s cannot be read: %s", self.place, error)
            return None
        return known if known is not None and known.origin == self._origin else None

    def _follow(self, every: float) -> None:
        """Refresh until the run ends; after a failure soon again, but not more often than on schedule."""
        backoff = Backoff(min(_RETRY_SECONDS, every), every, jitter=0.2)
        pause = min(_RETRY_SECONDS, every) if self._said else every
        while not self.closed.wait(pause):
            try:
                self._refresh(self._current)
                backoff.reset()
                pause = every
            except Exception as error:  # whatever it is, the query goes on with what it has
                self._failed(error)
                pause = backoff.next()

    def _refresh(self, known: TableContent | None) -> None:
        """Read the table if it has changed, and make that the newest content."""
        if self._opened is None:
            self._opened = open_table(self.name_in_query, self._source, self._workspace)
        found = self._opened.read(known.version if known is not None else None)
        if found is not None:
            limits = TableLimits(self._table.most_rows, self._table.most_bytes)
            records = takewhile(lambda _: not self.closed.is_set(), found.records)
            read = static_table(self.name_in_query, records, self.schema, self._table.keys, limits, found.least)
            if self.closed.is_set():  # a part of the table may be missing
                return
            content = self._stored(read, found.version, known)
            if known is None or content.name != known.name:
                self._report(read, content)
                self._unused.append(content.name)
            self._current = content
        else:
            self._current = known
        self._current_at = time.time()
        if self._said:
            self._said = ""
            self._say(f"table {self.name_in_query}: refreshed again")
        self._retain()

    def _stored(self, read: StaticTable, version: str | None, known: TableContent | None) -> TableContent:
        order = [(key, "ascending") for key in self._table.keys]  # the same rows make the same file
        try:
            return self._contents.store(read.rows.sort_by(order), self._origin, version, known)
        except OSError as error:
            why = f"the content cannot be written to {self.place}: {error.strerror or error}"
            hint = "free some space there, or let the login write"
            raise MillraceError(Problem(f"source {self.name_in_query}: {why}", hint, field="spec.checkpoint")) from None

    @property
    def name_in_query(self) -> str:
        """The name of the source."""
        return self.place.name

    def _report(self, read: StaticTable, content: TableContent) -> None:
        name = self.name_in_query
        log.info("table %s: content %s with %d rows, %d bytes", name, content.name, content.rows, content.size)
        if self._current is None:  # each refresh has the same to say
            if read.rejected:
                self._say(f"source {name}: {read.rejected} records of the static table do not decode")
            if read.incomplete:
                keys = " or ".join(self._table.keys)
                self._say(
                    f"source {name}: {read.incomplete} records of the static table are no rows: they have no {keys}"
                )

    def _failed(self, error: Exception) -> None:
        """Count a refresh that has failed, and say why unless that was said last."""
        self._failures += 1
        if str(error) == self._said:
            return
        self._said = str(error)
        since = datetime.fromtimestamp(self._current_at, UTC).strftime("%Y-%m-%d %H:%M:%S")
        self._say(f"table {self.name_in_query} cannot be refreshed, so it stays as of {since} UTC: {error}")

    def _fits(self, name: str) -> bool:
        """Return whether a content that a batch has from before has the columns that the query reads now."""
        if name in self._used or name == self.current.name:
            return True
        try:
            fits = bool(self._contents.columns(name).equals(self.schema))
        except FileNotFoundError:
            return True  # the task that needs it says so
        if not fits:
            self._say(
                f"table {self.name_in_query}: a batch is repeated with the newest content, since its own one has other "
                "columns than the query reads now"
            )
        return fits

    def _retain(self) -> None:
        """Remove contents that no batch can have any more."""
        try:
            oldest = (self._oldest() or {}).get(self.name_in_query)
            if oldest is not None:
                self._contents.remove_before(oldest)
            last = max(self._used, default="")
            for name in [each for each in self._unused if each < last]:  # no later batch has an older content
                self._unused.remove(name)
                if name not in self._used:
                    self._contents.remove(name)
        except (OSError, MillraceError) as error:
            log.warning("old contents in %s cannot be removed: %s", self.place, error)


def _origin(source: SourceSpec) -> str:
    """Return a digest of all that decides which rows a table has."""
    document = source.to_document()
    table = {name: value for name, value in document["table"].items() if name not in _OF_REFRESH}
    return hashlib.sha256(json.dumps(document | {"table": table}, sort_keys=True).encode()).hexdigest()
