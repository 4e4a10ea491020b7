"""The view of a table for look-ups: the driver's copy of its rows, one committed batch after the other.

A batch is applied after the topic's transaction has committed, by a thread of the view: the sink hands over what it has
fetched, and does not wait. If the thread falls behind by more than ``MOST_PENDING`` bytes, the batches that it has not
applied are dropped, and the view is built again from the topic; meanwhile it stays at its last batch. So it is with a
batch that removes very many rows, whose keys would take too much memory.

A view that an earlier run has left is continued if its rows are those of the last batch in the topic
(``TableOrigin``); otherwise, it is built again.

A rebuild reads the topic from its beginning up to marks: the ends of its partitions at a moment when this driver has no
transaction open. What lies before the marks is the table at a known batch. Messages after them wait for the batch that
they belong to, so that a rebuild never mixes batches.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from confluent_kafka import (
    IsolationLevel,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from millrace_api.errors import MillraceError
from millrace_jobs.changes import FROM, TO
from millrace_jobs.disk import boot_id
from millrace_jobs.kafka.cluster import Partition
from millrace_jobs.kafka.headers import VALID_FROM, VALID_TO
from millrace_jobs.lookups.history import NO_TIMES, NO_VERSIONS, HistoryTimes, Version, VersionChanges
from millrace_jobs.lookups.store import CopyClaim, Item, StoreError, TableStore
from millrace_jobs.sinks.kafka.table_reading import read_messages
from millrace_jobs.sinks.kafka.topic import LastWritten, TableOrigin, TargetTopic
from millrace_support.backoff import Backoff

MOST_PENDING = 64 << 20
"""Most bytes of results that wait to be applied; a single batch may be larger."""

REBUILDING = "the table is still being read from its topic: try again"

_MARK_SECONDS = 5.0
_POLL_SECONDS = 0.2

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TableMark:
    """The ends of the topics' partitions at a batch, with its times."""

    batch: LastWritten
    times: HistoryTimes
    ends: Mapping[Partition, int]


@dataclass(frozen=True)
class PendingBatch:
    """A committed batch that waits to be applied.

    Args:
        batch: the number of the batch, and its token.
        times: the times that the history then answers for.
        rows: the columns ``key`` and ``value``, and FROM if the table has a history; a row without a value is removed.
        removed: keys of further rows to be removed, as an Arrow array of text; None for none.
        earlier: changes of earlier versions, as ``table_results.split_newest`` returns them; None without a history.
    """

    batch: LastWritten
    times: HistoryTimes
    rows: pa.Table
    removed: pa.ChunkedArray | None = None
    earlier: pa.Table | None = None

    @property
    def bytes(self) -> int:
        """The approximate memory that it takes."""
        return sum(int(part.nbytes) for part in (self.rows, self.removed, self.earlier) if part is not None)


class TableView:
    """A view that a thread of its own keeps, from the first ``rebuild`` until ``close``.

    ``store`` has the rows; it is closed with the view. ``notify`` is called with the reason why there are no look-ups,
    or with an empty text once there are.
    """

    def __init__(self, store: TableStore, notify: Callable[[str], None] = lambda _: None) -> None:
        self._store = store
        self._notify = notify
        self._changed = threading.Condition()
        self._pending: deque[PendingBatch] = deque()
        self._bytes = 0
        self._mark: TableMark | None = None
        self._needs_mark = False
        self._closed = False
        self._failed = False
        self._topics: Sequence[TargetTopic] = ()
        self._group = ""
        self._origin: TableOrigin | None = None
        self._thread: threading.Thread | None = None

    def rebuild(
        self,
        topics: Sequence[TargetTopic],
        group: str,
        batch: LastWritten,
        times: HistoryTimes = NO_TIMES,
        origin: TableOrigin | None = None,
    ) -> None:
        """Continue the view, or build it again from its topics; call it while no transaction of this driver is open.

        Args:
            topics: the topic of the table and, if it has one, that of its history.
            group: a consumer group that this user may use; no offsets are committed.
            batch: the last batch in the topics.
            times: the times that the history then answers for.
            origin: what the rows are a copy of; None if they are not to be continued, neither now nor by a later run.
        """
        self._topics, self._group, self._origin = topics, group, origin
        self._drop_pending(batch, times)
        if self._thread is None:
            self._notify(REBUILDING)
            self._thread = threading.Thread(target=self._keep, name="table view", daemon=True)
            self._thread.start()

    def offer(self, pending: PendingBatch) -> None:
        """Hand over a batch that has just been committed to the topic; return without waiting for the view."""
        with self._changed:
            if self._failed or self._closed:
                return
            too_many = bool(self._pending) and self._bytes + pending.bytes > MOST_PENDING
            if not (too_many or self._needs_mark):
                self._pending.append(pending)
                self._bytes += pending.bytes
                self._changed.notify()
                return
        self._drop_pending(pending.batch, pending.times)

    def read_again(self, batch: LastWritten, times: HistoryTimes) -> None:
        """Have the view read up to a committed batch that is not handed over, since it removes too many rows."""
        if not (self._failed or self._closed):
            self._drop_pending(batch, times)

    def close(self) -> None:
        """Apply the batches that wait, stop the thread, and close the store; a second call does nothing."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
        self._store.close()

    def _drop_pending(self, batch: LastWritten, times: HistoryTimes) -> None:
        """Have the view built again up to this batch, the last one in the topic."""
        mark = self._marked(batch, times)
        with self._changed:
            self._pending.clear()
            self._bytes = 0
            self._mark = mark
            self._needs_mark = mark is None
            self._changed.notify()

    def _marked(self, batch: LastWritten, times: HistoryTimes) -> TableMark | None:
        """Return where the topics end now; None if Kafka does not answer: then the next batch brings a mark."""
        ends: dict[Partition, int] = {}
        for topic in self._topics:
            try:
                ends |= _ends_of(topic)
            except (KafkaException, KeyError, TimeoutError, MillraceError) as error:
                _log.warning("the view of topic %s has to wait for the next batch: %s", topic.name, error)
                return None
        return TableMark(batch, times, ends)

    def _keep(self) -> None:
        """Keep the view until it is closed, or until its store fails."""
        pauses = Backoff()
        while not self._closed or (self._pending and self._mark is None):
            try:
                if self._mark is not None:
                    if not self._resume():
                        self._build()
                    pauses.reset()
                else:
                    self._follow()
            except StoreError as error:
                self._give_up(f"there are no look-ups any more: {error}; restart the query with a smaller table")
                return
            except MillraceError as error:
                pause = pauses.next()
                _log.warning("the view cannot be read from its topic, trying again in %.0f s: %s", pause, error)
                with self._changed:
                    self._changed.wait_for(lambda: self._closed, pause)
            except Exception as error:  # look-ups must not end the query
                _log.exception("the view of the table failed")
                self._give_up(f"there are no look-ups any more: {error!r}; restart the query")
                return

    def _give_up(self, reason: str) -> None:
        with self._changed:
            self._failed = True
            self._pending.clear()
        _log.warning("%s", reason)
        self._notify(reason)

    def _follow(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._pending or self._mark or self._closed)
            if not self._pending or self._mark:
                return
            pending = self._pending.popleft()
            self._bytes -= pending.bytes
        number, token = pending.batch
        assert number is not None
        self._store.apply(number, *_split(pending), pending.times, token)

    def _resume(self) -> bool:
        """Go on with the rows in the store, if they are those of the mark."""
        with self._changed:
            mark, origin, found = self._mark, self._origin, self._store.claimed()
            if mark is None or origin is None or found is None or found.batch != mark.batch:
                return False
            claim = found.claim
            if claim.boot not in (None, boot_id()) or not origin.follows(claim.identity, claim.ends):
                return False
            self._store.claim(CopyClaim(origin.identity, origin.ends, boot_id()))
            self._mark = None
        self._notify("")
        return True

    def _build(self) -> None:
        """Read the topic up to the mark, and further if the mark moves meanwhile; then show the rows."""
        self._store.start_over()
        positions: dict[Partition, int] = {}
        while not self._closed:
            mark = self._mark
            if mark is not None:
                for changes in self._read(mark, positions):
                    self._store.load(changes.upserts, changes.deletes, changes.history)
            with self._changed:
                self._changed.wait_for(lambda: self._mark is not None or self._closed)
                if self._closed:
                    return
                is_reached = self._mark is mark
                if is_reached:
                    self._mark = None
            if is_reached and mark is not None:
                origin = self._origin
                claim = None if origin is None else CopyClaim(origin.identity, origin.ends, boot_id())
                self._store.publish(mark.batch.batch, mark.times, mark.batch.token, claim)
                self._notify("")
                self._store.start_over()  # frees the room that the rows took before
                return

    def _read(self, mark: TableMark, positions: dict[Partition, int]) -> Iterator[ReadChanges]:
        """Yield the changes of committed messages from ``positions`` up to the mark, and move the positions there."""
        topic = self._topics[0]
        unread = [place for place, end in mark.ends.items() if positions.get(place, 0) < end]
        reading = f"reading the table in {' and '.join(each.name for each in self._topics)}"
        polls = read_messages(
            topic,
            self._group,
            unread,
            reading=reading,
            poll_seconds=_POLL_SECONDS,
            positions=positions,
            marks=mark.ends,
        )
        with closing(polls):
            for messages in polls:
                changes = ReadChanges(mark.times.since)
                for message in messages:
                    changes.note(message, is_row=message.topic() == topic.name)
                yield changes
                if self._closed:
                    return


class ReadChanges:
    """What some messages of the table and of its history change; versions that ended by ``since`` are left out."""

    def __init__(self, since: int | None = None) -> None:
        self._since = since
        self._rows: dict[bytes, bytes | None] = {}
        self._starts: dict[bytes, int] = {}
        self._versions: list[Version] = []

    @property
    def upserts(self) -> list[Item]:
        """Rows to be written."""
        return [(key, row) for key, row in self._rows.items() if row is not None]

    @property
    def deletes(self) -> list[bytes]:
        """Keys of rows to be removed."""
        return [key for key, row in self._rows.items() if row is None]

    @property
    def history(self) -> VersionChanges:
        """Changes of versions."""
        return VersionChanges(list(self._starts.items()), self._versions)

    def note(self, message: Message, *, is_row: bool) -> None:
        """Enter a message of the table, or of its history; one without a key is of neither."""
        key, value = message.key(), message.value()
        if not key:
            return
        name, row = _bytes(key), None if value is None else _bytes(value)
        headers = dict[str, Any](message.headers() or ())
        start = int(headers[VALID_FROM]) if VALID_FROM in headers else None
        if is_row:
            self._rows[name] = row
            self._starts.pop(name, None)
            if start is not None:
                self._starts[name] = start
        elif start is not None:
            end = int(headers.get(VALID_TO, start))
            is_old = self._since is not None and end <= self._since
            self._versions.append(Version(name, start, end, None if is_old else row))


def _ends_of(topic: TargetTopic) -> dict[Partition, int]:
    admin = AdminClient(topic.connection.settings())
    numbers = admin.list_topics(topic.name, timeout=_MARK_SECONDS).topics[topic.name].partitions
    newest = {TopicPartition(topic.name, number): OffsetSpec.latest() for number in numbers}
    # a commit's markers may still be on their way: the last stable offset would be too small
    level = IsolationLevel.READ_UNCOMMITTED
    answers = admin.list_offsets(newest, isolation_level=level, request_timeout=_MARK_SECONDS)
    return {Partition(topic.name, place.partition): answer.result(_MARK_SECONDS).offset
            for place, answer in answers.items()}  # fmt: skip


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _split(pending: PendingBatch) -> tuple[list[Item], list[bytes], VersionChanges]:
    """Return the rows to write, the keys to remove, which include those of rows without a value, and versions."""
    rows = pending.rows
    valid = rows.filter(rows.column("value").is_valid())
    gone = rows.filter(rows.column("value").is_null()).column("key")
    keys, values = (valid.column(name).cast(pa.binary()).to_pylist() for name in ("key", "value"))
    removed = gone.cast(pa.binary()).to_pylist()
    if pending.removed is not None:
        removed += pending.removed.cast(pa.binary()).to_pylist()
    upserts = list(zip(keys, values, strict=True))
    if pending.earlier is None:
        return upserts, removed, NO_VERSIONS
    names, texts = (pending.earlier.column(name).cast(pa.binary()).to_pylist() for name in ("key", "value"))
    starts, ends = pending.earlier.column(FROM), pending.earlier.column(TO).fill_null(0)
    versions = map(Version, names, starts.to_pylist(), ends.to_pylist(), texts)
    return upserts, removed, VersionChanges(list(zip(keys, valid.column(FROM).to_pylist(), strict=True)), [*versions])
