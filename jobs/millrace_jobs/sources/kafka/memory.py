"""The state that a Kafka source keeps besides its position: decisions that are made once and must never change."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.disk import sync
from millrace_jobs.sources.kafka.offsets import Offsets, of_position, to_position


@dataclass(frozen=True)
class TopicMemory:
    """The decisions made when a query began, or when a partition was first found.

    ``topics`` maps topic names to Kafka's topic ids. ``first`` is the offset at which each partition begins for this
    query. ``ending`` is the offset at which it stops, or None if that is not known yet or the query is unbounded.
    """

    topics: Mapping[str, str]
    first: Offsets
    ending: Offsets | None = None


class KafkaMemory:
    """The file ``kafka.json`` in a source's folder; a write is on disk before it returns."""

    def __init__(self, directory: str) -> None:
        self._path = Path(directory, "kafka.json")

    def read(self) -> TopicMemory | None:
        """Return what was written last; None in a new checkpoint. Raises MillraceError if the file is damaged."""
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
            ending = content["ending"]
            return TopicMemory(
                topics=content["topics"],
                first=of_position(content["first"]),
                ending=None if ending is None else of_position(ending),
            )
        except FileNotFoundError:
            return None
        except OSError as error:
            raise MillraceError(Problem(f"cannot be read: {error.strerror}", "", str(self._path))) from error
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            hint = "restore the checkpoint, or start with a new one"
            raise MillraceError(Problem("what the Kafka source remembers is damaged", hint, str(self._path))) from error

    def write(self, remembered: TopicMemory) -> None:
        """Replace the file atomically. Raises MillraceError if it cannot be written; the old content remains then."""
        content: dict[str, Any] = {
            "topics": dict(remembered.topics),
            "first": to_position(remembered.first),
            "ending": None if remembered.ending is None else to_position(remembered.ending),
        }
        unfinished = self._path.with_suffix(".new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with unfinished.open("w", encoding="utf-8") as file:
                json.dump(content, file)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(self._path)
            sync(self._path.parent)
        except OSError as error:
            message = f"cannot keep what the Kafka source has to remember: {error.strerror}"
            raise MillraceError(Problem(message, "", str(self._path))) from error
