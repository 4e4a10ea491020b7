"""The process that takes or removes one snapshot for a driver beside the query, at the lowest priority.

python -P -m millrace_jobs.checkpoint.snapshot_process    # started by the driver

The driver's own Python takes part in every batch, so that a thread there would hold batches up. The order is one line
of JSON on the standard input, the outcome one on the standard output. When its standard input ends, the process ends,
too: its driver is gone, or does not wait any longer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from threading import Thread
from typing import Any, Self

from millrace_api.errors import MillraceError
from millrace_jobs.checkpoint.automatic_snapshots import take_automatically
from millrace_jobs.checkpoint.requested_snapshots import remove_requested, report_on, take_requested
from millrace_jobs.checkpoint.snapshot_manifest import Snapshot, SnapshotReason
from millrace_jobs.places import Place, place_of

_LOWEST_PRIORITY = 19
_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class SnapshotOrder:
    """What a process is to do: take an automatic snapshot, or what the query's annotation asks for.

    Attributes:
        reason: why the snapshot is taken.
        keep: number of automatic snapshots to keep.
        max_age: seconds after which they are removed; None for no age.
        name: name of the snapshot to take or to remove, if it is asked for.
        asked: when that was first seen; empty for an automatic snapshot.
        removes: whether it is to be removed.
    """

    reason: SnapshotReason = SnapshotReason.REQUEST
    keep: int = 1
    max_age: float | None = None
    name: str = ""
    asked: str = ""
    removes: bool = False


@dataclass(frozen=True)
class SnapshotOutcome:
    """What an attempt has come to.

    Attributes:
        error: why it failed; None if it did not.
        name: name of the snapshot, which has the newest finished batch unless it is an earlier one that was asked for;
            None if no batch is finished yet, or if one was to be removed.
        batch: its batch.
        size: bytes of its files.
        is_new: whether it was taken now.
        removed: names of the snapshots that were removed.
        seconds: time that the attempt took.
        report: the report on the snapshots that there are now, as JSON; None after a failure.
    """

    error: str | None = None
    name: str | None = None
    batch: int = 0
    size: int = 0
    is_new: bool = False
    removed: tuple[str, ...] = ()
    seconds: float = 0.0
    report: str | None = None

    @classmethod
    def parsed(cls, line: bytes) -> Self:
        """Return the outcome that a process has written."""
        try:
            found: dict[str, Any] = json.loads(line)
            return cls(**found | {"removed": tuple(found["removed"])})
        except (ValueError, KeyError, TypeError):
            return cls(error="the process that takes it has ended; the driver's pod may have too little memory")


class SnapshotProcess:
    """A process that takes or removes a snapshot; it begins when this object is made."""

    def __init__(self, root: Place, order: SnapshotOrder) -> None:
        command = [sys.executable, "-P", "-m", "millrace_jobs.checkpoint.snapshot_process"]
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - it is read when the process has ended
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the driver
        )
        line = json.dumps({"root": str(root), **asdict(order)})
        assert self._process.stdin is not None
        with suppress(OSError):  # the process has ended
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    @property
    def is_running(self) -> bool:
        """Whether it has no outcome yet."""
        return self._process.poll() is None

    def outcome(self, given_up: Callable[[], bool]) -> SnapshotOutcome | None:
        """Wait for the outcome and return it; None if it was ended early, since ``given_up`` returned True."""
        while self.is_running and not given_up():
            time.sleep(_POLL_SECONDS)
        if self.is_running:
            self.close()
            return None
        self._output.seek(0)
        line = self._output.read()
        self.close()
        return SnapshotOutcome.parsed(line)

    def close(self) -> None:
        """End the process, if it still runs; what it leaves is removed by the next one."""
        if self.is_running:
            self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        self._output.close()


def _attempt(place: str, order: SnapshotOrder) -> SnapshotOutcome:
    began = time.monotonic()
    try:
        root = place_of(place)
        outcome, report = _carry_out(root, order), None
        with suppress(OSError):
            report = report_on(root).to_json()
    except MillraceError as error:
        return SnapshotOutcome(error=str(error))
    except OSError as error:
        return SnapshotOutcome(error=f"{error.filename or place}: {error.strerror or error}")
    except Exception as error:  # whatever it is, the driver is to show it
        return SnapshotOutcome(error=repr(error))
    return replace(outcome, seconds=time.monotonic() - began, report=report)


def _carry_out(root: Place, order: SnapshotOrder) -> SnapshotOutcome:
    now = datetime.now(UTC)
    if order.removes:
        remove_requested(root, order.name, order.asked)
        return SnapshotOutcome(removed=(order.name,))
    if order.asked:
        return _outcome(take_requested(root, order.name, order.asked, now), is_new=True)
    age = None if order.max_age is None else timedelta(seconds=order.max_age)
    found = take_automatically(root, order.reason, order.keep, age, now)
    return _outcome(found.snapshot, is_new=found.is_new, removed=found.removed)


def _outcome(snapshot: Snapshot | None, *, is_new: bool, removed: tuple[str, ...] = ()) -> SnapshotOutcome:
    if snapshot is None:
        return SnapshotOutcome()
    return SnapshotOutcome(None, snapshot.name, snapshot.batch, snapshot.bytes, is_new, removed)


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    os.nice(_LOWEST_PRIORITY)
    order = json.loads(sys.stdin.buffer.readline())
    place, order["reason"] = order.pop("root"), SnapshotReason(order["reason"])
    Thread(target=_end_with_input, daemon=True).start()
    sys.stdout.write(json.dumps(asdict(_attempt(place, SnapshotOrder(**order)))))
    sys.stdout.flush()
    os._exit(0)  # a thread reads the standard input, which the end of the interpreter would wait for
