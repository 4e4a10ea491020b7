"""The entries of Spark's two logs in a checkpoint: the offsets of each batch, and its commit."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from millrace_jobs.places import Place, may_be_away

_REMEMBERED = 4
"""Number of batches whose entries are remembered."""


class LogEntries:
    """The texts of the entries, by log and batch.

    In a folder, every call reads them again. In an object store, where each look costs a request, entries are
    remembered, and the newest one is looked for from the last one known on.

    Methods raise OSError if an entry cannot be read, but TransientError if an object store does not answer.
    """

    def __init__(self, spark: Place) -> None:
        self._spark = spark
        self._newest: dict[str, int] = {}
        self._texts: dict[tuple[str, int], str] = {}

    def __reduce__(self) -> tuple[type[LogEntries], tuple[Place]]:
        return LogEntries, (self._spark,)

    def text(self, log: str, batch: int) -> str:
        """Return an entry. Raises UnicodeDecodeError if it is no text."""
        place, known = self._spark / log / str(batch), (log, batch)
        if isinstance(place, Path):
            return place.read_text(encoding="utf-8")
        text = self._texts.get(known)
        if text is None:
            with may_be_away(place):
                text = place.read_text(encoding="utf-8")
            if known not in self._texts:
                self.remember(log, batch, text)
        return text

    def remember(self, log: str, batch: int, text: str) -> None:
        """Take this for the text of an entry, in an object store."""
        kept = {key: known for key, known in list(self._texts.items()) if key[1] >= batch - _REMEMBERED}
        self._texts = kept | {(log, batch): text}

    def newest(self, log: str) -> int | None:
        """Return the newest batch in a log; None if it has none."""
        if isinstance(self._spark, Path) or log not in self._newest:
            listed = self._listed(log)
            if listed is None or isinstance(self._spark, Path):
                return listed
            self._newest[log] = listed
        with suppress(FileNotFoundError):
            while self.text(log, self._newest[log] + 1):
                self._newest[log] += 1
        return self._newest[log]

    def _listed(self, log: str) -> int | None:
        with suppress(FileNotFoundError):
            with may_be_away(self._spark):
                names = [entry.name for entry in (self._spark / log).iterdir()]
            return max((int(name) for name in names if name.isdigit()), default=None)
        return None
