"""``millrace.json``: the query that a checkpoint belongs to, as of its last run."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from millrace_api.model.streamquery import API_VERSION, KIND, StreamQuery
from millrace_jobs.checkpoint.spark_log import damaged
from millrace_jobs.disk import sync


@dataclass(frozen=True)
class Marker:
    """The identity of a checkpoint and the query that it belongs to.

    ``id`` is drawn when the checkpoint is created, and identifies it to other systems. ``layout`` describes its state,
    once that is known.
    """

    id: str
    query: StreamQuery
    state_partitions: int
    layout: Mapping[str, Any] | None = None

    @classmethod
    def new(cls, query: StreamQuery, state_partitions: int) -> Marker:
        """Return the marker of a new checkpoint, with a new id."""
        return cls(str(uuid.uuid4()), _without_status(query), state_partitions)

    @classmethod
    def read(cls, root: Path) -> Marker | None:
        """Return the marker of a checkpoint, or None if it has none.

        A marker of the first version has no id, and only the name, sources, text, emit and sink of its query. It gets a
        new id.

        Raises:
            MillraceError: the marker is damaged.
        """
        path = root / "millrace.json"
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if "id" not in content:
                spec = {field: content[field] for field in ("sources", "query", "emit", "sink")}
                content |= {"id": str(uuid.uuid4()), "query": _document(content["name"], spec)}
            query = StreamQuery.model_validate(content["query"])
            return cls(content["id"], query, int(content["statePartitions"]), content.get("layout"))
        except FileNotFoundError:
            return None
        except ValidationError as error:
            said = error.errors()[0]
            raise damaged(path, f"{'.'.join(map(str, said['loc']))}: {said['msg']}") from None
        except (ValueError, KeyError, TypeError):
            raise damaged(path, "it is not what Millrace writes there") from None

    def write(self, root: Path) -> None:
        """Replace the marker atomically and durably: a checkpoint without its marker is useless."""
        content = {
            "id": self.id,
            "statePartitions": self.state_partitions,
            "layout": self.layout,
            "query": self.query.to_document(),
        }
        partial = root / "millrace.new"
        with partial.open("w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(root / "millrace.json")
        sync(root)

    def made_for(self, query: StreamQuery, state_partitions: int) -> Marker:
        """Return the marker for another query, without a layout; nothing may depend on the query before."""
        return Marker(self.id, _without_status(query), state_partitions)

    def of(self, query: StreamQuery) -> Marker:
        """Return the marker after a compatible query has taken the checkpoint over."""
        return Marker(self.id, _without_status(query), self.state_partitions, self.layout)


def _document(name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec}


def _without_status(query: StreamQuery) -> StreamQuery:
    return query.model_copy(update={"status": None})
