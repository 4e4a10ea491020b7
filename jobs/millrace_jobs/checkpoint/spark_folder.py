"""Spark's own part of a checkpoint, ``spark``: its logs, its checksums, and a changed copy in its place.

Spark logs each batch twice: its offsets, with the pinned plan, before it, and a commit after it. Beside each file,
Hadoop's local file system keeps checksums as ``.NAME.crc``. Spark does not verify them when it reads; Millrace does.

In a folder, the state is changed in a copy, ``spark.new``, so that the checkpoint runs as before if the process dies
before the copy is complete. Then two renames follow: ``spark`` to ``spark.old``, and ``spark.new`` to ``spark``. If the
process dies between them, ``spark`` is missing, which shows that the copy is complete. ``recover``, which is called
whenever a checkpoint is opened, then does the second rename, and the checkpoint runs as changed.

While a query runs, a copy takes the place of its state under another name, ``spark-1``, ``spark-2`` and so on: the
state stores that Spark has closed may still write to where they were. The highest number is in force. The others are
removed after the query's next batch (``run.state_switch``), or when the checkpoint is opened. A copy with another
layout does so, too: the marker names the folder before it is there, so that both change in one step.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_api.model.deployment import ANOTHER_CHECKPOINT
from millrace_jobs.disk import sync
from millrace_jobs.places import Place, may_be_away
from millrace_jobs.plan.control import Pin, contents_in
from millrace_jobs.plan.log_entries import LogEntries
from millrace_jobs.sinks.base import LastBatch, ResultBatch
from millrace_jobs.stores.objects import ObjectPath

PARTITIONS = "spark.sql.shuffle.partitions"
"""Setting of a batch in the log: the number of state partitions."""

_FOLDER = re.compile(r"spark(?:-(\d+))?(?:\.new|\.old)?")

_MISSING_STATE_FILE = re.compile(r"streaming state file of (?:file:)?(/.+?|s3a://.+?) does not exist")


class SparkLog:
    """Spark's offset log and commit log in ``spark``.

    Methods raise MillraceError if a file that they need is damaged.
    """

    def __init__(self, spark: Place | Callable[[], Place]) -> None:
        self._given = spark

    @cached_property
    def spark(self) -> Place:
        """Spark's part of the checkpoint; a function returns where it is when it is first needed."""
        return self._given() if callable(self._given) else self._given

    @cached_property
    def _entries(self) -> LogEntries:
        return LogEntries(self.spark)

    def check(self) -> None:
        """Check every file that a run starts from.

        Raises:
            MillraceError: a file is damaged, or the two logs do not match.
        """
        last = self.last_batch()
        if last.begun is None and last.committed is None:
            return
        if last.begun is None or last.begun - (-1 if last.committed is None else last.committed) not in (0, 1):
            begun, committed = ("no batch" if n is None else f"batch {n}" for n in (last.begun, last.committed))
            raise damaged(self.spark, f"its offsets end with {begun} and its commits with {committed}")
        for batch in range(max(0, last.begun - 1), last.begun + 1):
            self.batch(batch)
            self._require_unchanged(self.spark / "offsets" / str(batch))
        if last.committed is not None:
            self.watermark_ms()
            self._require_unchanged(self.spark / "commits" / str(last.committed))
        self._require_unchanged(self.spark / "metadata")

    def damaged_state(self, text: str) -> MillraceError | None:
        """Return the error for a missing or changed state file, or None if no file is damaged.

        Args:
            text: Spark's error on loading the state; it names the file if one is missing.
        """
        missing = _MISSING_STATE_FILE.search(text)
        if missing is not None:
            return damaged(missing.group(1), "it is gone")
        if isinstance(self.spark, ObjectPath):
            return None  # the store has checksums of its own
        changed = next(_changed_files(self.spark / "state"), None)
        return None if changed is None else damaged(changed, "it is not as Spark wrote it")

    def last_batch(self) -> LastBatch:
        """Return the last batch that was begun, and the last that was committed."""
        return LastBatch(self._entries.newest("offsets"), self._entries.newest("commits"))

    def batch(self, number: int) -> ResultBatch:
        """Return a batch that was begun, with its epoch and its watermark."""
        pin = self.pin(number)
        watermark = self._line("offsets", number, 1).get("batchWatermarkMs", 0)
        return ResultBatch(number, pin.epoch if pin is not None else 0, int(watermark))

    def committed(self) -> dict[str, Mapping[str, Any]]:
        """Return the offset of each source after the last committed batch; empty before the first."""
        return {offset["source"]: offset for offset in self.committed_offsets()}

    def committed_offsets(self) -> Sequence[Mapping[str, Any]]:
        """Return the offset of each reader after the last committed batch: a query may read a source twice."""
        last = self.last_batch().committed
        return [] if last is None else self._offsets(last)

    def begun(self) -> dict[str, Mapping[str, Any]]:
        """Return the offset of each source after the newest batch that was begun; empty before the first."""
        last = self.last_batch().begun
        return {} if last is None else {offset["source"]: offset for offset in self._offsets(last)}

    def last_pin(self) -> Pin | None:
        """Return the plan of the newest batch that was begun, or None before the first."""
        last = self.last_batch().begun
        return None if last is None else self.pin(last)

    def unfinished_pin(self) -> Pin | None:
        """Return the plan of the unfinished batch, or None if every batch that was begun is committed."""
        unfinished = self.last_batch().unfinished
        return None if unfinished is None else self.pin(unfinished)

    def watermark_ms(self) -> int:
        """Return the watermark of the next batch in milliseconds since 1970; 0 before the first watermark."""
        last = self.last_batch().committed
        return 0 if last is None else int(self._line("commits", last, 1).get("nextBatchWatermarkMs", 0))

    def settings(self) -> Mapping[str, str]:
        """Return the Spark settings of the newest batch, which every later one keeps; empty before the first."""
        last = self.last_batch().begun
        return {} if last is None else self.settings_of(last)

    def settings_of(self, batch: int) -> Mapping[str, str]:
        """Return the Spark settings of a batch that was begun."""
        settings: Mapping[str, str] = self._line("offsets", batch, 1).get("conf", {})
        return settings

    def _require_unchanged(self, path: Place) -> None:
        try:
            if path.read_bytes() if isinstance(path, ObjectPath) else path.stat().st_size and _is_as_written(path):
                return
        except OSError as error:
            raise damaged(path, error.strerror or str(error)) from None
        raise damaged(path, "it is not as Spark wrote it")

    def pin(self, batch: int) -> Pin | None:
        """Return the plan of a batch that was begun; None if none of its sources had one.

        A source that had nothing to offer keeps the plan of an earlier batch in its offset.
        """
        offsets = [offset for offset in self._offsets(batch) if "pin" in offset]
        if any(offset["pin"] != offsets[0]["pin"] for offset in offsets):
            before = self._positions(batch - 1)
            offsets = [offset for offset in offsets if (offset["source"], offset["position"]) not in before] or offsets
        stored = offsets[0]["pin"] if offsets else None
        try:
            return None if stored is None else Pin.from_json(stored)
        except TypeError:  # not an object, or with other fields than those of a pin
            why = "its pin does not have the fields that this version of Millrace writes"
            raise damaged(self.spark / "offsets" / str(batch), why) from None

    def contents(self, batch: int) -> dict[str, str]:
        """Return the content of each static table in a batch that was begun, where its offsets name one."""
        self._offsets(batch)  # raises if the entry is damaged
        return contents_in("\n".join(self._lines("offsets", batch)))

    def oldest_contents(self) -> dict[str, str] | None:
        """Return the contents of the oldest batch in the log; None if it names none, or has just been removed."""
        log = SparkLog(self.spark)  # remembers nothing: another thread may use this one
        try:
            with may_be_away(self.spark):
                batches = [int(entry.name) for entry in (self.spark / "offsets").iterdir() if entry.name.isdigit()]
            return (log.contents(min(batches)) or None) if batches else None
        except (FileNotFoundError, MillraceError):
            return None

    def _offsets(self, batch: int) -> list[dict[str, Any]]:
        lines = self._lines("offsets", batch)
        offsets = [self._line("offsets", batch, 2 + i) for i, line in enumerate(lines[2:]) if line != "-"]
        if not all("source" in offset and "position" in offset for offset in offsets):
            raise damaged(self.spark / "offsets" / str(batch), "it has an offset without a position")
        return offsets

    def _positions(self, batch: int) -> list[tuple[str, Any]]:
        """Return the sources of a batch with their positions; empty if it is not in the log any more."""
        try:
            return [(offset["source"], offset["position"]) for offset in self._offsets(batch)]
        except TransientError:  # of an object store, which may still have it
            raise
        except MillraceError:
            return []

    def _line(self, log: str, batch: int, number: int) -> dict[str, Any]:
        try:
            content = json.loads(self._lines(log, batch)[number])
        except (ValueError, IndexError):
            content = None
        if not isinstance(content, dict):
            raise damaged(self.spark / log / str(batch), f"line {number + 1} is not what Spark writes there")
        return content

    def _lines(self, log: str, batch: int) -> list[str]:
        path = self.spark / log / str(batch)
        try:
            lines = self._entries.text(log, batch).splitlines()
        except UnicodeDecodeError:
            raise damaged(path, "it is not text") from None
        except OSError as error:
            raise damaged(path, error.strerror or str(error)) from None
        if len(lines) < 2 + (log == "offsets"):
            raise damaged(path, f"it has {len(lines)} lines")
        return lines


def damaged(path: Place | str, why: str) -> MillraceError:
    """Return the error for a damaged file of the checkpoint."""
    hint = f"put back a copy of the whole checkpoint, or start over with {ANOTHER_CHECKPOINT}"
    return MillraceError(Problem(f"the checkpoint is damaged: {path}: {why}", hint, field="spec.checkpoint"))


def _is_as_written(path: Path) -> bool:
    """Whether a file matches its checksums; True if it has none. Raises OSError if it cannot be read."""
    try:
        checksums = path.with_name(f".{path.name}.crc").read_bytes()
    except FileNotFoundError:
        return True
    if checksums[:4] != b"crc\0" or len(checksums) < 8:
        return False
    (length,) = struct.unpack(">I", checksums[4:8])
    with path.open("rb") as file:
        found = b"".join(struct.pack(">I", zlib.crc32(chunk)) for chunk in iter(lambda: file.read(length), b""))
    return found == checksums[8:]


def _changed_files(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder that exist and do not match their checksums.

    Checksums without a file are not damage. Spark renames and deletes a file and its checksums one after the other, and
    its maintenance may do so during this scan.
    """
    for place, _, names in os.walk(folder):
        for name in sorted(names):
            if name.startswith(".") and name.endswith(".crc"):
                path = Path(place, name[1 : -len(".crc")])
                with suppress(OSError):  # Spark's own error about a missing or unreadable file is clearer
                    if not _is_as_written(path):
                        yield path


def make_copy(spark: Path) -> Path:
    """Copy the folder to change the copy, and return it.

    Its files are hard links if the file system supports them; Spark replaces files, and never changes one in place.

    Raises:
        OSError: the copy cannot be created.
    """
    copy = _new(spark)
    shutil.copytree(spark, copy, copy_function=_link)
    return copy


@contextmanager
def plainly_named(folder: Place) -> Iterator[Place]:
    """Yield a path of a folder by which Spark's reader of states and its repartitioning find it.

    They take a path for a URI, encode it, and take the result for a path again, so a name with a blank or a percent
    sign would be another one. A link without such names leads there, where Spark runs on this machine.
    """
    if isinstance(folder, ObjectPath) or quote(str(folder)) == str(folder):
        yield folder
        return
    places = (place for place in (tempfile.gettempdir(), "/tmp", "/dev/shm") if quote(place) == place)  # noqa: S108
    with tempfile.TemporaryDirectory(prefix="millrace-", dir=next(places)) as name:
        link = Path(name, "spark")
        link.symlink_to(folder)
        yield link


def folder_in_force(root: Path) -> Path:
    """Return Spark's part of a checkpoint in a folder, also between the two renames of a change."""
    return root / _name(max((number for number, _ in _folders(root)), default=0))


def adopt(spark: Path, copy: Path) -> Path | None:
    """Put a copy in force in place of ``spark``, which stays, and return where it is; None if there is no copy."""
    root, place = spark.parent, place_of_copy(spark)
    try:
        copy.rename(place)
    except FileNotFoundError:
        return None
    sync(root)
    return place


def place_of_copy(spark: Path) -> Path:
    """Return where a copy will be in force that takes the place of ``spark``."""
    root = spark.parent
    return root / _name(1 + max((number for number, _ in _folders(root)), default=0))


def remove_outdated(spark: Path) -> None:
    """Remove what is not in force any more; call it under the checkpoint's lock."""
    for _, folder in _folders(spark.parent):
        if folder != spark:
            shutil.rmtree(folder, ignore_errors=True)


def _folders(root: Path) -> list[tuple[int, Path]]:
    """Return Spark's parts of a checkpoint by their numbers, with the copies and the originals of changes."""
    found = ((_FOLDER.fullmatch(each.name), each) for each in root.glob("spark*"))
    return [(int(match[1] or 0), each) for match, each in found if match is not None]


def _name(number: int) -> str:
    return f"spark-{number}" if number else "spark"


def possible_folders(spark: Place) -> tuple[Place, ...]:
    """Return the places that may hold the checkpoint before ``recover``: its own, the copy, and the original."""
    if isinstance(spark, ObjectPath):
        return (spark,)
    return spark, _new(spark), _old(spark)


def swap_in_copy(spark: Path) -> None:
    """Replace the original with the changed copy."""
    spark.rename(_old(spark))
    recover(spark)


def recover(spark: Path) -> None:
    """Complete or discard a change that a dead process left unfinished; call it under the checkpoint's lock."""
    if not spark.exists():
        with suppress(FileNotFoundError):  # a checkpoint without a batch has neither
            _new(spark).rename(spark)
    for left in (_new(spark), _old(spark)):
        shutil.rmtree(left, ignore_errors=True)


def _new(spark: Path) -> Path:
    return spark.with_name(spark.name + ".new")


def _old(spark: Path) -> Path:
    return spark.with_name(spark.name + ".old")


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
