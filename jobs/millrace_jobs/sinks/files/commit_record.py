"""The record of batches beside objects with results: which batch is the last one, and what is to be published."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.sinks.base import NO_BATCH
from millrace_jobs.stores.objects import ObjectPath

_ANOTHER_WRITER = Problem(
    "another driver has written to the sink's record of batches",
    "make sure that only one driver runs, then run the same command again: nothing is lost",
)


@dataclass(frozen=True)
class Publication:
    """Staged objects, each with its name as a result, in the order in which they are published.

    Attributes:
        files: objects with names that no result has.
        replacing: objects that take the place of results, once those of ``files`` are there.
        removed: names of results that go after that.
    """

    files: Mapping[str, str]
    replacing: Mapping[str, str] = field(default_factory=dict)
    removed: tuple[str, ...] = ()

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """Return what a record says. Raises the errors of a document that is not one."""
        files, replacing = (
            {str(name): str(result) for name, result in each.items()}
            for each in (document["files"], document.get("replacing", {}))
        )
        return cls(files, replacing, tuple(map(str, document.get("removed", ()))))

    @property
    def document(self) -> dict[str, Any]:
        """What a record says; of a batch, what it said before there were compactions."""
        merged = {"replacing": dict(self.replacing), "removed": list(self.removed)} if self.replacing else {}
        return {"files": dict(self.files), **merged}


class CommitRecord:
    """The number of the last batch, and what is published last: staged objects with their names as results.

    Each version has a mark of its own, so an answer that was lost does not leave it open who has written the record.
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
        self.published = Publication({})
        """What is published last: the objects of this batch, or what a compaction after it has merged."""

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
            self.published = Publication.of(document)
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
        self._put(self.batch, self.published)

    def write(self, batch: int, published: Publication) -> None:
        """Record a batch, or a compaction after it. Raises the same errors as ``take``."""
        self._put(batch, published)
        self.batch, self.published = batch, published

    def remove(self) -> None:
        """Remove it, if it exists: the answer to an earlier attempt of this request may have been lost."""
        self._path.unlink(missing_ok=True)
        self.tag = None

    def _put(self, batch: int, published: Publication) -> None:
        document: dict[str, Any] = {"checkpoint": self._checkpoint, "mark": uuid.uuid4().hex, "batch": batch}
        content = json.dumps(document | published.document).encode()
        tag = self._path.create(content) if self.tag is None else self._path.replace_version(content, self.tag)
        if tag is None:  # or the answer to an earlier attempt of this request was lost
            found, tag = self._path.read_version()
            if found != content:
                raise MillraceError(_ANOTHER_WRITER)
        self.tag = tag
