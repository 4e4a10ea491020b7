"""The checkpoint of a query: whose it is, who uses it, and what Spark has written into it.

Layout: ``millrace.json`` (the query it belongs to), ``lock``, ``sources/NAME`` (what a source remembers),
``policies`` (what the partitioner replicas have learned), and ``spark`` (Spark's own checkpoint: offsets with the
pinned plans, commits, state).
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlparse

from millrace_api.errors import MillraceError, Problem
from millrace_api.streamquery import Spec, StreamQuery
from millrace_jobs.plan.pin import Pin


class Checkpoint:
    """An opened checkpoint; this process holds its lock until it ends or calls ``close``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.spark = root / "spark"
        self.policies = root / "policies"
        self._lock: IO[str] | None = None

    def open(self, query: StreamQuery) -> None:
        """Take the checkpoint for this query; make it where there is none.

        Raises:
            MillraceError: it cannot be written, another process runs on it, or it is another query's.
        """
        try:
            self._take(query)
        except BaseException:
            self.close()
            raise

    def _take(self, query: StreamQuery) -> None:
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            self._lock = (self.root / "lock").open("w", encoding="utf-8")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._claim(identity(query))
        except BlockingIOError:
            raise _problem(f"another run is using the checkpoint {self.root}", "end that run first") from None
        except OSError as error:
            hint = "make room there, or write spec.checkpoint.uri with a folder that this user may write to"
            raise _problem(f"the checkpoint {self.root} cannot be written: {error.strerror}", hint) from None

    def _claim(self, wanted: dict[str, Any]) -> None:
        marker = self.root / "millrace.json"
        if not marker.exists():
            partial = marker.with_suffix(".new")
            partial.write_text(json.dumps(wanted, indent=1), encoding="utf-8")
            partial.replace(marker)
            return
        held = json.loads(marker.read_text(encoding="utf-8"))
        different = [field for field in wanted if held.get(field) != wanted[field] and field != "statePartitions"]
        if different:
            field = different[0]
            raise _problem(
                f"the checkpoint {self.root} is of another query: its {field} was {held.get(field)!r} "
                f"and is now {wanted[field]!r}",
                "choose another spec.checkpoint.uri, or remove this one to begin anew",
            )

    @property
    def state_partitions(self) -> int:
        """Number of state partitions, fixed when the checkpoint was made."""
        return int(json.loads((self.root / "millrace.json").read_text(encoding="utf-8"))["statePartitions"])

    def source_folder(self, name: str) -> Path:
        """Where a source keeps what it has to remember."""
        return self.root / "sources" / name

    def committed(self) -> dict[str, Mapping[str, Any]]:
        """Offset of each source after the last batch that was finished."""
        last = _newest(self.spark / "commits")
        if last is None:
            return {}
        return {offset["source"]: offset for offset in self._offsets(last)}

    def last_pin(self) -> Pin | None:
        """The plan of the newest batch that was begun; None where there is none."""
        last = _newest(self.spark / "offsets")
        if last is None:
            return None
        return next((Pin.from_json(offset["pin"]) for offset in self._offsets(last) if "pin" in offset), None)

    def begun_under(self) -> Pin | None:
        """The plan of the batch that was begun and is not finished; None where there is no such batch."""
        if _newest(self.spark / "offsets") == _newest(self.spark / "commits"):
            return None
        return self.last_pin()

    def _offsets(self, batch: int) -> list[Mapping[str, Any]]:
        lines = (self.spark / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()[2:]
        return [json.loads(line) for line in lines if line != "-"]

    def watermark_ms(self) -> int:
        """The watermark that the next batch would run under, in milliseconds; 0 before there is one."""
        last = _newest(self.spark / "commits")
        if last is None:
            return 0
        text = (self.spark / "commits" / str(last)).read_text(encoding="utf-8").splitlines()[1]
        return int(json.loads(text).get("nextBatchWatermarkMs", 0))

    def close(self) -> None:
        """Let another run have it."""
        if self._lock is not None:
            self._lock.close()


def checkpoint_root(query: StreamQuery) -> Path:
    """Folder of the query's checkpoint: ``.millrace/NAME`` where the query does not say.

    Raises:
        MillraceError: the checkpoint is not a folder of this machine.
    """
    spec = query.spec.checkpoint
    if spec is None:
        return Path(".millrace").absolute() / query.name
    uri = urlparse(spec.uri or "")
    if uri.scheme != "file":
        hint = "write spec.checkpoint: {uri: file:///...}, or leave it out"
        raise _problem(f"millrace run cannot use the checkpoint {spec.uri or 'claim'}", hint)
    return Path(unquote(uri.path))


def identity(query: StreamQuery) -> dict[str, Any]:
    """What has to stay the same from run to run on one checkpoint."""
    document = query.spec.to_document()
    return {
        "name": query.name,
        "sources": {name: _lasting(source) for name, source in document["sources"].items()},
        "query": document["query"],
        "emit": document["emit"],
        "sink": document["sink"],
        "statePartitions": state_partitions(query.spec),
    }


def _lasting(source: dict[str, Any]) -> dict[str, Any]:
    """A source without what only says how fast it is read."""
    pace = {"speed", "rate", "rateTrace", "maxFilesPerBatch"}
    return {
        kind: {k: v for k, v in value.items() if k not in pace} if kind in ("files", "replay") else value
        for kind, value in source.items()
        if kind != "corruptRecords"
    }


def state_partitions(spec: Spec) -> int:
    """Tasks and state stores of the merge: each costs tens of milliseconds a batch, so one per core of this machine."""
    return min(spec.parallelism.max, max(2, os.cpu_count() or 2))


def _newest(log: Path) -> int | None:
    with suppress(FileNotFoundError):
        return max((int(entry.name) for entry in log.iterdir() if entry.name.isdigit()), default=None)
    return None


def _problem(message: str, hint: str) -> MillraceError:
    return MillraceError(Problem(message, hint, field="spec.checkpoint"))
