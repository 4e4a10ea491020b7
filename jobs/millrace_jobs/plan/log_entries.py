"""The entries of Spark's two logs in a checkpoint: the offsets of each batch, and its commit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from millrace_api.errors import Problem, TransientError
from millrace_jobs.object_store import ObjectPath
from millrace_jobs.places import Place

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

    def text(self, log: str, batch: int) -> str:
        """Return an entry. Raises UnicodeDecodeError if it is no text."""
        place, known = self._spark / log / str(batch), (log, batch)
        if isinstance(place, Path):
            return place.read_text(encoding="utf-8")
        if known not in self._texts:
            with may_be_away(place):
                self.remember(log, batch, place.read_text(encoding="utf-8"))
        return self._texts[known]

    def remember(self, log: str, batch: int, text: str) -> None:
        """Take this for the text of an entry, in an object store."""
        self._texts = {key: known for key, known in self._texts.items() if key[1] >= batch - _REMEMBERED}
        self._texts[(log, batch)] = text

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


@contextmanager
def may_be_away(place: Place) -> Iterator[None]:
    """Raise errors of an object store as transient ones; those of folders, and missing objects, stay as they are."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        if not isinstance(place, ObjectPath):
            raise
        hint = "check that the object store answers, and that its login is valid"
        problem = Problem(f"{error.filename or place} cannot be used: {error.strerror}", hint, field="spec.checkpoint")
        raise TransientError(problem) from None
