"""The file ``millrace.json`` of a checkpoint: whose it is."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError

from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.checkpoint.spark_folder import damaged
from millrace_jobs.places import Place, write_durably

MARKER = "millrace.json"


@dataclass(frozen=True)
class Marker:
    """The file ``millrace.json``: the identity of a checkpoint, and the query of its last run, without a status.

    ``id`` is generated when the checkpoint is created, and identifies it to other systems. ``layout`` describes its
    state, once that is known. ``released`` is the batch after which the state was last found to hold no results back.
    """

    id: str
    query: StreamQuery
    state_partitions: int
    layout: Mapping[str, Any] | None = None
    released: int | None = None

    @classmethod
    def read(cls, root: Place) -> Self | None:
        """Return the marker of a checkpoint, or None if it has none.

        Raises:
            MillraceError: the marker is damaged.
        """
        path = root / MARKER
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            query = StreamQuery.model_validate(content["query"])
            partitions = int(content["statePartitions"])
            return cls(content["id"], query, partitions, content.get("layout"), content.get("released"))
        except FileNotFoundError:
            return None
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"]))
            raise damaged(path, f"this version does not read its query, {field}: {first['msg']}") from None
        except (ValueError, KeyError, TypeError):
            raise damaged(path, "it is not what Millrace writes there") from None

    def write(self, root: Place) -> None:
        """Replace the marker atomically and durably: a checkpoint without its marker is useless."""
        content = {
            "id": self.id,
            "statePartitions": self.state_partitions,
            "layout": self.layout,
            "released": self.released,
            "query": self.query.to_document(),
        }
        write_durably(root / MARKER, json.dumps(content, indent=1).encode())


def checkpoint_above(path: Path) -> Path | None:
    """Return the checkpoint that a file or folder is, or would be, within or at; None if it is in none."""
    real = Path(os.path.realpath(path))
    return next((folder for folder in (real, *real.parents) if (folder / MARKER).is_file()), None)
