"""The log of files seen in an object store, for a query whose checkpoint is there: see ``FileLogMirror``."""

from __future__ import annotations

from pathlib import Path

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.stores.objects import ObjectPath

ANOTHER_WRITER = Problem(
    "another driver has written to the log of files seen",
    "make sure that only one driver runs, then run the same command again: nothing is lost",
)


class FileLogMirror:
    """The log as an object, which is replaced as a whole before the working copy of this run in a folder is changed.

    The readers of a run share the working copy and, in ``files.tag`` beside it, the version of the object that it is. A
    version that this run has not written is another driver's.

    Args:
        log: the object.
        folder: folder of the working copy.
    """

    def __init__(self, log: ObjectPath, folder: Path) -> None:
        self._log = log
        self._tag, self._attempt = folder / "files.tag", folder / "files.attempt"

    def fetch(self, copy: Path) -> None:
        """Write the working copy, unless another reader of this run has done so. Call it under the log's lock."""
        if self._tag.exists():
            return
        try:
            content, tag = self._log.read_version()
        except FileNotFoundError:
            content, tag = b"", ""
        copy.write_bytes(content)
        self._tag.write_text(tag, encoding="utf-8")

    def replace(self, content: bytes) -> None:
        """Replace the object; call it under the log's lock.

        After a lost answer, it may have what the last attempt of this run wrote, which is kept beside the copy.

        Raises:
            MillraceError: another driver has written to it.
            OSError: the object store does not do it, and nothing else has changed.
        """
        before = self._attempt.read_bytes() if self._attempt.exists() else None
        self._attempt.write_bytes(content)
        tag = self._put(content, self._tag.read_text(encoding="utf-8"))
        if tag is None:
            found, tag = self._log.read_version()
            if found not in (content, before):
                raise MillraceError(ANOTHER_WRITER)
            tag = tag if found == content else self._put(content, tag)
            if tag is None:
                raise MillraceError(ANOTHER_WRITER)
        self._tag.write_text(tag, encoding="utf-8")

    def _put(self, content: bytes, tag: str) -> str | None:
        return self._log.replace_version(content, tag) if tag else self._log.create(content)
