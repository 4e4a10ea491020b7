"""Spark's event log of a query: where it is, and what is kept of it.

Spark writes a run's log as a folder of files, and begins another file at a size. It never removes one, so the log of a
query that streams would grow without end. A history server needs little of what is over: which application it was, its
settings, and the executors that are still there. So the oldest files are replaced by one that has no more than that,
under the name by which a history server knows such a file.

The history server can do the same by itself, but keeps the progress of every batch. Nothing here delays a batch, and an
event log that cannot be written ends no run.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

from millrace_api.model.reporting import EventLogSpec
from millrace_api.model.streamquery import StreamQuery
from millrace_api.validation.places import is_object
from millrace_jobs.confinement import require_data
from millrace_jobs.disk import absolute_path
from millrace_jobs.places import Place, files_below, remove_all, write_durably
from millrace_jobs.stores.objects import ObjectPath

_SECONDS = 60.0
"""Time between two looks at the files of the running log."""

_FILE_SIZE = "16m"
"""Size of the events, before compression, at which Spark begins another file."""
_FILES = 4
"""Complete files of a run that are kept; of older ones, only what a history server cannot do without."""
_CODEC = "zstd"
_COMPACTED = ".compact"
_UNFINISHED = ".millrace-unfinished"
_FILE = re.compile(rf"events_(?P<number>[0-9]+)_.+\.{_CODEC}(?P<compacted>\{_COMPACTED})?")
_RUN = re.compile(r"eventlog_v2_[a-z0-9_-]+")
"""The folder of a run; whoever else writes to the place of the logs can have no other folder removed."""

_NOT_IN_A_FOLDER = re.compile(r"[ :/]")
_DOTTED = re.compile(r"[.${}'\"]")

_SPARK = "SparkListener"
_STREAM = "org.apache.spark.sql.streaming.StreamingQueryListener$Query"
_KEPT = frozenset(
    f"{_SPARK}{name}" for name in ("LogStart", "ApplicationStart", "EnvironmentUpdate", "ResourceProfileAdded")
)
"""Events that a history server needs of an application, whatever became of it."""

_BEGINNINGS = {
    f"{_SPARK}ExecutorAdded": ("executor", "Executor ID"),
    f"{_SPARK}BlockManagerAdded": ("blocks", "Block Manager ID"),
    f"{_STREAM}StartedEvent": ("stream", "runId"),
}
_ENDS = {
    f"{_SPARK}ExecutorRemoved": ("executor", "Executor ID"),
    f"{_SPARK}BlockManagerRemoved": ("blocks", "Block Manager ID"),
    f"{_STREAM}TerminatedEvent": ("stream", "runId"),
}
"""Events at which something begins or ends, each with the field that identifies it: kept is what goes on."""

_EVENT = re.compile(rb'\{"Event":"([^"]+)"')


class EventFile(NamedTuple):
    """A file of a log: its number, whether it stands for all files before it, and its name."""

    number: int
    is_compacted: bool
    name: str


@dataclass(frozen=True)
class EventLog:
    """The event log of a query's runs, in a folder or an object store that other queries may use, too.

    ``owner`` identifies the query, among those of the same name.
    """

    place: Place
    spec: EventLogSpec
    name: str
    owner: str

    @classmethod
    def of(cls, query: StreamQuery, checkpoint: str) -> EventLog | None:
        """Return the log of a query, whose checkpoint is at this place; None if it has none."""
        spec = query.spec.event_log
        if spec is None:
            return None
        identity = "\n".join((query.metadata.namespace or "", query.name, checkpoint))
        return cls(place_of(spec), spec, query.name, hashlib.sha256(identity.encode()).hexdigest()[:12])

    @property
    def record(self) -> Place:
        """The file with the folders of the query's runs, the latest last; a history server passes over its name."""
        return self.place / f".millrace-{self.name}-{self.owner}.json"

    def prepare(self) -> None:
        """Create the folder, and make sure that it can be written.

        Raises:
            OSError: it cannot be.
            MillraceError: the query may not write there.
        """
        if isinstance(self.place, Path):
            require_data(self.place)
            self.place.mkdir(parents=True, exist_ok=True)
        self._write_record(self.runs())  # in an object store, what makes a folder of the prefix

    def runs(self) -> list[str]:
        """Return the names of the folders of the query's runs, the latest last."""
        try:
            found = json.loads(self.record.read_bytes())
        except (FileNotFoundError, ValueError):
            return []
        listed = found if isinstance(found, list) else []
        return [each for each in listed if isinstance(each, str) and _RUN.fullmatch(each)]

    def begin(self, application: str) -> Place:
        """Record a run by the id of its application, and remove the logs of runs that are too many.

        Returns:
            The folder of the run's log.
        """
        name = folder_name(application)
        runs = [*(each for each in self.runs() if each != name), name]
        kept = runs[-self.spec.runs :]
        self._write_record(kept)
        for each in runs[: -self.spec.runs]:
            remove_all(self.place / each)
        return self.place / name

    def _write_record(self, runs: list[str]) -> None:
        write_durably(self.record, json.dumps(runs).encode())


def place_of(spec: EventLogSpec) -> Place:
    """Return the folder or the prefix that has the logs."""
    return ObjectPath.of(spec.path) if is_object(spec.path) else absolute_path(spec.path)


def settings(spec: EventLogSpec) -> dict[str, str]:
    """Return the settings by which Spark writes its event log there."""
    place = place_of(spec)
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": place.as_uri() if isinstance(place, Path) else str(place),
        "spark.eventLog.rolling.enabled": "true",
        "spark.eventLog.rolling.maxFileSize": _FILE_SIZE,
        "spark.eventLog.compress": "true",
        "spark.eventLog.compression.codec": _CODEC,
    }


def folder_name(application: str) -> str:
    """Return the name of the folder in which Spark keeps the log of an application."""
    return f"eventlog_v2_{_DOTTED.sub('_', _NOT_IN_A_FOLDER.sub('-', application)).lower()}"


def event_files(names: Iterable[str]) -> list[EventFile]:
    """Return the files of a log among these names, in order, from the last one on that stands for those before it."""
    matches = ((name, _FILE.fullmatch(name)) for name in names)
    found = sorted(EventFile(int(m["number"]), m["compacted"] is not None, name) for name, m in matches if m)
    first = max((place for place, each in enumerate(found) if each.is_compacted), default=0)
    return found[first:]


def compact(folder: Place, files: int) -> bool:
    """Replace the oldest files of a log by one, so that at most ``files`` complete ones remain beside it.

    The last file is being written. The one that replaces others is complete before those are removed, and readers
    begin with it.

    Returns:
        Whether there was anything to replace.
    """
    names = [name for name, _ in files_below(folder)]
    found = event_files(names)
    complete = [each for each in found[:-1] if not each.is_compacted]
    if len(complete) <= files:
        return False
    last = complete[-files - 1] if files else complete[-1]
    old = [each for each in found if each.number <= last.number]
    lines = kept_lines(line for each in old for line in _lines((folder / each.name).read_bytes()))
    _write(folder / f"{last.name}{_COMPACTED}", _compressed(lines))
    known = {last.name + _COMPACTED}
    for name in names:
        match = _FILE.fullmatch(name)
        if match is not None and int(match["number"]) <= last.number and name not in known:
            (folder / name).unlink(missing_ok=True)
    return True


def _write(place: Place, content: bytes) -> None:
    """Create a file of a log in one step; until then, and after a crash, a history server passes over its name."""
    if isinstance(place, ObjectPath):
        place.write_bytes(content)
        return
    unfinished = place.with_name(_UNFINISHED)
    unfinished.write_bytes(content)
    unfinished.replace(place)


def kept_lines(lines: Iterable[bytes]) -> list[bytes]:
    """Return the events that a history server needs of those that are over, in their order."""
    kept: dict[object, bytes] = {}
    for number, line in enumerate(lines):
        match = _EVENT.match(line)
        event = match[1].decode() if match else ""
        if event in _KEPT:
            kept[number] = line
        elif event in _BEGINNINGS:
            kept[_subject(line, *_BEGINNINGS[event])] = line
        elif event in _ENDS:
            kept.pop(_subject(line, *_ENDS[event]), None)
    return list(kept.values())


def _subject(line: bytes, kind: str, field: str) -> tuple[str, str]:
    value = json.loads(line).get(field)
    identity = value.get("Executor ID") if isinstance(value, dict) else value
    return kind, str(identity)


def _lines(content: bytes) -> Iterator[bytes]:
    """Yield the lines of a compressed file."""
    import pyarrow as pa

    with pa.CompressedInputStream(io.BytesIO(content), _CODEC) as stream:
        yield from io.BufferedReader(stream)


def _compressed(lines: Iterable[bytes]) -> bytes:
    import pyarrow as pa

    text = b"".join(line if line.endswith(b"\n") else line + b"\n" for line in lines)
    return bytes(pa.compress(text, codec=_CODEC, asbytes=True))


class EventLogKeeper:
    """Keeps the event log of a run small, in a thread of its own, until it is closed.

    Args:
        log: the event log.
        application: id of the application that writes it.
        message: shows the user a message; called when it fails for the first time.
    """

    def __init__(self, log: EventLog, application: str, message: Callable[[str], None]) -> None:
        self._log, self._application, self._message = log, application, message
        self._ended = Event()
        self._thread = Thread(target=self._keep, name="event log", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop without waiting for a store that does not answer."""
        self._ended.set()
        self._thread.join(timeout=2.0)

    def _keep(self) -> None:
        folder: Place | None = None
        has_failed = False
        while not self._ended.is_set():
            try:
                folder = folder or self._log.begin(self._application)
                with suppress(FileNotFoundError):  # a history server has removed it
                    compact(folder, _FILES)
            except Exception as error:  # whatever it is, the query goes on
                if not has_failed:
                    self._message(
                        f"the event log in {self._log.place} grows: its old files cannot be replaced: {error}"
                    )
                has_failed = True
            self._ended.wait(_SECONDS)
