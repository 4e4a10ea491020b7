"""The view of a table for look-ups: the driver's copy of its rows, one committed batch after the other.

A batch is applied after the topic's transaction has committed, by a thread of the view: the sink hands over what it has
fetched, and does not wait. If the thread falls behind by more than ``MOST_PENDING`` bytes, the batches that it has not
applied are dropped, and the view is built again from the topic; meanwhile it stays at its last batch.

A rebuild reads the topic from its beginning up to marks: the ends of its partitions at a moment when this driver has no
transaction open. What lies before the marks is the table at a known batch. Messages after them wait for the batch that
they belong to, so that a rebuild never mixes batches.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from millrace_api.errors import MillraceError
from millrace_jobs.kafka.errors import error_of, is_transient, kafka_problem
from millrace_jobs.lookups.store import Item, StoreError, TableStore
from millrace_jobs.sinks.kafka.topic import TargetTopic
from millrace_support.backoff import Backoff

MOST_PENDING = 64 << 20
"""Most bytes of results that wait to be applied; a single batch may be larger."""

REBUILDING = "the table is still being read from its topic: try again"

_MARK_SECONDS = 5.0
_POLL_SECONDS = 0.2
_CHUNK = 10_000

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TableMark:
    """The ends of the topic's partitions at a batch; ``batch`` is None before the first."""

    batch: int | None
    ends: Mapping[int, int]


@dataclass(frozen=True)
class PendingBatch:
    """A committed batch that waits to be applied: the columns ``key`` and ``value``, and keys removed after them."""

    batch: int
    rows: pa.Table
    removed: Sequence[str]

    @property
    def bytes(self) -> int:
        """The approximate memory that it takes."""
        return int(self.rows.nbytes) + sum(map(len, self.removed))


class TableView:
    """A view that a thread of its own keeps, from the first ``rebuild`` until ``close``.

    Args:
        store: where the rows are; it is closed with the view.
        notify: called with the reason why there are no look-ups, or with an empty text once there are.
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
        self._topic: TargetTopic | None = None
        self._group = ""
        self._thread: threading.Thread | None = None

    def rebuild(self, topic: TargetTopic, group: str, batch: int | None) -> None:
        """Build the view again from the topic; call it while no transaction of this driver is open.

        Args:
            topic: the topic of the table.
            group: a consumer group that this user may use; no offsets are committed.
            batch: the last batch in the topic; None if it has none.
        """
        self._topic, self._group = topic, group
        self._drop_pending(batch)
        if self._thread is None:
            self._notify(REBUILDING)
            self._thread = threading.Thread(target=self._keep, name="table view", daemon=True)
            self._thread.start()

    def offer(self, batch: int, rows: pa.Table, removed: Sequence[str] = ()) -> None:
        """Hand over a batch that has just been committed to the topic; return without waiting for the view.

        Args:
            batch: the number of the batch.
            rows: the columns ``key`` and ``value``; a row without a value is removed.
            removed: keys of further rows to be removed.
        """
        pending = PendingBatch(batch, rows, removed)
        with self._changed:
            if self._failed or self._closed:
                return
            too_many = bool(self._pending) and self._bytes + pending.bytes > MOST_PENDING
            if not (too_many or self._needs_mark):
                self._pending.append(pending)
                self._bytes += pending.bytes
                self._changed.notify()
                return
        self._drop_pending(batch)

    def close(self) -> None:
        """Stop the thread and close the store; a second call does nothing."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
        self._store.close()

    def _drop_pending(self, batch: int | None) -> None:
        """Have the view built again up to this batch, the last one in the topic."""
        mark = self._marked(batch)
        with self._changed:
            self._pending.clear()
            self._bytes = 0
            self._mark = mark
            self._needs_mark = mark is None
            self._changed.notify()

    def _marked(self, batch: int | None) -> TableMark | None:
        """Return where the topic ends now; None if Kafka does not answer: then the next batch brings a mark."""
        assert self._topic is not None
        name = self._topic.name
        try:
            admin = AdminClient(self._topic.connection.settings())
            numbers = admin.list_topics(name, timeout=_MARK_SECONDS).topics[name].partitions
            asked = {TopicPartition(name, number): OffsetSpec.latest() for number in numbers}
            # a commit's markers may still be on their way: the last stable offset would be too small
            level = IsolationLevel.READ_UNCOMMITTED
            answers = admin.list_offsets(asked, isolation_level=level, request_timeout=_MARK_SECONDS)
            ends = {place.partition: answer.result(_MARK_SECONDS).offset for place, answer in answers.items()}
        except (KafkaException, KeyError, TimeoutError, MillraceError) as error:
            _log.warning("the view of topic %s has to wait for the next batch: %s", name, error)
            return None
        return TableMark(batch, ends)

    def _keep(self) -> None:
        """Keep the view until it is closed, or until its store fails."""
        pauses = Backoff()
        while not self._closed:
            try:
                if self._mark is not None:
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
        """Apply the next batch, once there is one."""
        with self._changed:
            self._changed.wait_for(lambda: self._pending or self._mark or self._closed)
            if not self._pending or self._mark or self._closed:
                return
            pending = self._pending.popleft()
            self._bytes -= pending.bytes
        upserts, deletes = _split(pending)
        self._store.apply(pending.batch, upserts, deletes)

    def _build(self) -> None:
        """Read the topic up to the mark, and further if the mark moves meanwhile; then show the rows."""
        self._store.start_over()
        positions: dict[int, int] = {}
        while not self._closed:
            mark = self._mark
            if mark is not None:
                for upserts, deletes in self._read(mark, positions):
                    self._store.load(upserts, deletes)
            with self._changed:
                self._changed.wait_for(lambda: self._mark is not None or self._closed)
                if self._closed:
                    return
                is_reached = self._mark is mark
                if is_reached:
                    self._mark = None
            if is_reached and mark is not None:
                self._store.publish(mark.batch)
                self._notify("")
                self._store.start_over()  # frees the room that the rows took before
                return

    def _read(self, mark: TableMark, positions: dict[int, int]) -> Iterator[tuple[list[Item], list[bytes]]]:
        """Yield the changes of committed messages from ``positions`` up to the mark, and move the positions there."""
        topic = self._topic
        assert topic is not None
        unread = {number for number, end in mark.ends.items() if positions.get(number, 0) < end}
        consumer = Consumer(
            topic.connection.settings()
            | {
                "group.id": self._group,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            }
        )
        try:
            consumer.assign([TopicPartition(topic.name, n, positions.get(n, OFFSET_BEGINNING)) for n in sorted(unread)])
            while unread and not self._closed:
                rows: dict[bytes, bytes | None] = {}
                for message in consumer.consume(_CHUNK, _POLL_SECONDS):
                    number, offset = message.partition() or 0, message.offset() or 0
                    error = message.error()
                    if error is None and number in unread and offset < mark.ends[number]:
                        positions[number] = offset + 1
                        _note(message, rows)
                    elif error is not None and error.code() != KafkaError._PARTITION_EOF:
                        if not is_transient(error):
                            raise kafka_problem(error, f"reading the table in topic {topic.name}", topic.connection)
                        continue
                    if offset + (error is None) >= mark.ends[number]:
                        unread.discard(number)
                        positions[number] = max(positions.get(number, 0), mark.ends[number])
                items = [(key, row) for key, row in rows.items() if row is not None]
                yield items, [key for key, row in rows.items() if row is None]
        except KafkaException as error:
            raise kafka_problem(error_of(error), f"reading the table in topic {topic.name}", topic.connection) from None
        finally:
            consumer.close()


def _note(message: Message, rows: dict[bytes, bytes | None]) -> None:
    """Enter a message in ``rows``; one without a key is not of a table."""
    key, value = message.key(), message.value()
    if key:
        rows[_bytes(key)] = None if value is None else _bytes(value)


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _split(pending: PendingBatch) -> tuple[list[Item], list[bytes]]:
    """Return the rows to write and the keys to remove, which include those of rows without a value."""
    rows = pending.rows.select(["key", "value"])
    valid = rows.filter(rows.column("value").is_valid())
    gone = rows.filter(rows.column("value").is_null()).column("key")
    keys, values = (valid.column(name).cast(pa.binary()).to_pylist() for name in ("key", "value"))
    removed = [*gone.cast(pa.binary()).to_pylist(), *(key.encode() for key in pending.removed)]
    return list(zip(keys, values, strict=True)), removed
