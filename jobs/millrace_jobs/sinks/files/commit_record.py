"""The record of the last batch that a sink has written to an object store: one object, replaced conditionally."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.object_store import ObjectPath

NO_BATCH = -1
"""Number of the last batch before the first one."""

_ANOTHER_WRITER = Problem(
    "another driver has written to the sink's record of batches",
    "make sure that only one driver runs, then run the same command again: nothing is lost",
)


class CommitRecord:
    """The number of the last batch, and its objects: staged names with their names as results.

    Each version has a mark of its own, so an answer that was lost does not leave it open who has written the record.

    Args:
        path: the object.
        checkpoint_id: id of the checkpoint whose batches these are.
    """

    def __init__(self, path: ObjectPath, checkpoint_id: str) -> None:
        self._path, self._checkpoint = path, checkpoint_id
        self._owner = checkpoint_id
        self.tag: str | None = None
        """Version of the object; None before it exists."""
        self.is_new = False
        """Whether this run has created it."""
        self.batch = NO_BATCH
        """Number of the last batch."""
        self.files: Mapping[str, str] = {}
        """Names of its staged objects, each with the name as a result."""

    @property
    def is_ours(self) -> bool:
        """Whether it belongs to this checkpoint."""
        return self._owner == self._checkpoint

    def read(self) -> None:
        """Read it, if it exists.

        Raises:
            MillraceError: it is not such a record.
            OSError: the store does not answer, or refuses.
        """
        try:
            content, self.tag = self._path.read_version()
        except FileNotFoundError:
            self.tag = None
            return
        try:
            document = json.loads(content)
            self._owner, self.batch = str(document["checkpoint"]), int(document["batch"])
            self.files = {str(name): str(result) for name, result in document["files"].items()}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            message = f"the sink's record of batches is damaged: {content[:100]!r}"
            raise MillraceError(Problem(message, "restore it, or write another path", str(self._path))) from error

    def take(self) -> None:
        """Write it again as it was read, after which no earlier driver can.

        Raises:
            MillraceError: another driver has written it in the meantime.
            OSError: the store does not answer, or refuses.
        """
        self.is_new = self.tag is None
        self._put(self.batch, self.files)

    def write(self, batch: int, files: Mapping[str, str]) -> None:
        """Record a batch. Raises the same errors as ``take``."""
        self._put(batch, files)
        self.batch, self.files = batch, files

    def withdraw(self) -> None:
        """Remove it, if it exists: the answer to an earlier attempt of this request may have been lost."""
        self._path.unlink(missing_ok=True)
        self.tag = None

    def _put(self, batch: int, files: Mapping[str, str]) -> None:
        document: dict[str, Any] = {"checkpoint": self._checkpoint, "mark": uuid.uuid4().hex, "batch": batch}
        content = json.dumps(document | {"files": dict(files)}).encode()
        tag = self._path.create(content) if self.tag is None else self._path.replace_version(content, self.tag)
        if tag is None:  # or the answer to an earlier attempt of this request was lost
            found, tag = self._path.read_version()
            if found != content:
                raise MillraceError(_ANOTHER_WRITER)
        self.tag = tag
