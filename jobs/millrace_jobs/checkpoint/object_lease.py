"""The lease of a checkpoint in an object store, and the batch that its holder has begun.

Both are in one object, ``lease.json``, which is only ever replaced on the condition that it still has the version that
this process wrote or read last. So taking the lease, renewing it and beginning a batch have one order for all drivers:
of two that both take themselves for the holder, the store lets one begin a batch, and the other ends.

What Spark writes is not conditional: an old driver that resumes late may replace the entry of a batch in Spark's offset
log by one of its own. An entry is therefore only a proposal until ``begin`` has put its text, as Spark has it in
memory, into the lease, which is before the first task of the batch. The next holder restores the texts of the last two
batches from there before Spark reads them (``restore``), and ``begin`` compares what Spark has read.

The object also names the place of Spark's part. A changed copy of that takes the place of the original by the same
conditional write, with its own last batch (``replace_spark``): a store has no rename.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_api.model.status import FailureClass
from millrace_jobs.checkpoint.lease import (
    LEASE_SECONDS,
    ONE_DRIVER,
    RENEWALS,
    Holder,
    Lease,
    boot_and_pids,
    since_boot,
)
from millrace_jobs.checkpoint.spark_folder import folder_in_force
from millrace_jobs.places import Place, files_below, within, write_durably
from millrace_jobs.plan.log_entries import LogEntries
from millrace_jobs.stores.objects import ObjectPath

_FILE, _SPARK = "lease.json", "spark"
"""Names of the object, and of Spark's part until a changed copy has replaced it."""

_ATTEMPTS = 4
"""Attempts of a conditional write whose earlier answer was lost; each one reads the object again."""


@dataclass(frozen=True)
class BegunBatch:
    """The batch that was begun last, with its entry in Spark's offset log, and that of the batch before it, if any."""

    batch: int
    offsets: str
    before: str | None


@dataclass(frozen=True)
class _Content:
    """The content of the object. ``holder`` is None once the lease was released; ``spark`` names Spark's part."""

    holder: Holder | None
    begun: BegunBatch | None
    spark: str = _SPARK

    @classmethod
    def parsed(cls, content: bytes) -> Self:
        """Parse the object. Raises ValueError if another program wrote it."""
        try:
            found: dict[str, Any] = json.loads(content)
            holder, begun = found["holder"], found["begun"]
            spark = str(found.get("spark", _SPARK))
            return cls(Holder(**holder) if holder else None, BegunBatch(**begun) if begun else None, spark)
        except (TypeError, KeyError) as error:
            raise ValueError(str(error)) from None

    def encoded(self) -> bytes:
        return json.dumps(asdict(self)).encode()


class ObjectLease(Lease):
    """A lease in an object store. Threads may use it at the same time."""

    failure = FailureClass.STORE

    def __init__(self, root: ObjectPath, seconds: float = LEASE_SECONDS) -> None:
        super().__init__(root, seconds)
        self._root, self._object = root, root / _FILE
        self._name = _SPARK
        self._mine = replace(self._mine, boot=boot_and_pids())
        self._tag: str | None = None
        self._begun: BegunBatch | None = None

    @property
    def spark(self) -> ObjectPath:
        """The place of Spark's part; call it after ``take``."""
        return self._root / self._name

    @property
    def begun(self) -> int | None:
        """The number of the batch that was begun last; None before the first."""
        return None if self._begun is None else self._begun.batch

    def restore(self) -> None:
        """Put the entries of the last two batches back into Spark's offset log; call it after ``take``.

        An entry that follows them was planned and not begun. Spark will run it, so it counts as begun from here on.
        """
        with self._renewing:
            begun = self._begun
            if begun is not None:
                for number, text in ((begun.batch - 1, begun.before), (begun.batch, begun.offsets)):
                    if text is not None and self._logged(number) != text:
                        (self.spark / "offsets" / str(number)).write_bytes(text.encode())
            log = LogEntries(self.spark)
            newest = log.newest("offsets")
            if newest is not None and (begun is None or newest == begun.batch + 1):
                before = self._logged(newest - 1) if begun is None else begun.offsets
                self._put(BegunBatch(newest, log.text("offsets", newest), before))

    def begin(self, batch: int, planned: Callable[[int], str]) -> None:
        """Begin a batch, or continue with the one that was begun last; nothing of it may run before.

        Args:
            batch: number of the batch.
            planned: returns the entry of a batch in Spark's offset log as Spark has it in memory: of this one, and of
                the one before.

        Raises:
            MillraceError: another driver has the checkpoint now, or may have it.
            TransientError: Spark has read an entry that an old driver wrote after ``restore``.
        """
        last = self._begun  # only this method and ``restore`` change it
        offsets, before = planned(batch), planned(batch - 1) if last is not None and batch else None
        if last is not None and batch == last.batch + 1:
            if before != last.offsets:
                raise self._replaced(batch - 1)
        elif last is not None and (batch, offsets) != (last.batch, last.offsets):
            raise self._replaced(batch)
        elif last is not None and last.before is not None and before != last.before:
            raise self._replaced(batch - 1)
        with self._renewing:
            if self.lost is not None:
                raise self.lost
            if last is None or batch != last.batch or self._is_due():
                self._put(BegunBatch(batch, offsets, before))

    def replace_spark(self, copy: Path) -> None:
        """Replace Spark's part by a changed copy in a folder, and what was begun by the copy's last batch.

        What an earlier change has left behind is removed.

        Raises:
            MillraceError: another driver has the checkpoint now, or may have it.
            OSError: the store does not answer, or refuses; Spark's part is as before.
        """
        for left in self._root.folders():
            if left.name.startswith(_SPARK) and left.name != self._name:
                left.remove_all()
        place = self._root / f"{_SPARK}-{uuid.uuid4().hex[:8]}"
        for name, _ in files_below(copy):
            if not name.endswith(".crc"):  # the store has checksums of its own
                write_durably(within(place, name), (copy / name).read_bytes())
        log, before = LogEntries(place), self.spark
        newest = log.newest("offsets")
        assert newest is not None, "the copy has no batch"
        with self._renewing:
            if self.lost is not None:
                raise self.lost
            begun = BegunBatch(newest, log.text("offsets", newest), log.text("offsets", newest - 1) if newest else None)
            self._put(begun, place.name)
        with suppress(OSError):  # it is removed by the next change
            before.remove_all()

    def check(self) -> None:
        """Ensure that this process still holds the lease, which costs a request only if a renewal is due.

        Raises:
            MillraceError: another driver has the checkpoint now, or may have it.
        """
        if self.lost is not None or self._is_due():
            super().check()

    def _is_due(self) -> bool:
        return since_boot() - self._renewed_at > self._seconds / RENEWALS

    def _logged(self, number: int) -> str | None:
        try:
            return (self.spark / "offsets" / str(number)).read_text()
        except FileNotFoundError:
            return None

    @staticmethod
    def _replaced(batch: int) -> TransientError:
        message = f"batch {batch} in Spark's log is not the one that was begun: an old driver has written to it"
        return TransientError(Problem(message, ONE_DRIVER, field="spec.checkpoint"))

    def _read(self) -> Holder | None:
        found = _version(self._object)
        if found is None:
            self._tag = self._begun = None
            return None
        content, self._tag = found
        self._begun, self._name = content.begun, content.spark
        return content.holder

    def _write(self) -> None:
        self._put(self._begun)

    def _put(self, begun: BegunBatch | None, spark: str | None = None) -> None:
        """Replace the version that this process knows; after a lost answer, that may not be its last one."""
        began = since_boot()
        content = _Content(self._renewal(), begun, spark or self._name)
        text = content.encoded()
        for _ in range(_ATTEMPTS):
            tag = self._object.create(text) if self._tag is None else self._object.replace_version(text, self._tag)
            if tag is None:
                found = _version(self._object)
                self._require_holder(None if found is None else found[0].holder)
                assert found is not None
                tag = found[1] if found[0] == content else None
                self._tag = found[1]
            if tag is not None:
                self._tag, self._begun, self._name = tag, begun, content.spark
                self._note_renewed(began)
                return
        raise OSError(5, "it changes with each attempt", self._file)

    def _remove(self) -> None:
        """Free the lease, and keep what was begun."""
        if self._tag is not None:
            self._object.replace_version(_Content(None, self._begun, self._name).encoded(), self._tag)


def spark_place(root: Place) -> Place:
    """Return the place of Spark's part of a checkpoint that this process need not hold.

    Raises:
        MillraceError: the lease is not what Millrace writes.
        OSError: the store does not answer, or refuses.
    """
    if isinstance(root, Path):
        return folder_in_force(root)
    found = _version(root / _FILE)
    return root / (_SPARK if found is None else found[0].spark)


def begun_entries(root: ObjectPath) -> dict[int, str]:
    """Return the entries of the last two batches in Spark's offset log as the lease has them.

    Raises:
        MillraceError: the lease is not what Millrace writes.
        OSError: the store does not answer, or refuses.
    """
    found = _version(root / _FILE)
    begun = None if found is None else found[0].begun
    if begun is None:
        return {}
    return {begun.batch: begun.offsets} | ({} if begun.before is None else {begun.batch - 1: begun.before})


def download(spark: ObjectPath, folder: Path) -> None:
    """Copy Spark's part to a folder. Raises OSError if that is not possible."""
    for name, _ in spark.objects():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(within(spark, name).read_bytes())


def _version(lease: ObjectPath) -> tuple[_Content, str] | None:
    try:
        text, tag = lease.read_version()
    except FileNotFoundError:
        return None
    try:
        return _Content.parsed(text), tag
    except ValueError:
        message = f"the checkpoint is damaged: {lease} is not what Millrace writes there"
        raise MillraceError(
            Problem(message, "put back a copy of the whole checkpoint", field="spec.checkpoint")
        ) from None
