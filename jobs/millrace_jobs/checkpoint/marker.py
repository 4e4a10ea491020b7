"""The file ``millrace.json`` of a checkpoint: whose it is."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic import ValidationError

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.deployment import ANOTHER_CHECKPOINT
from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.checkpoint.spark_folder import damaged, folder_in_force, place_of_copy
from millrace_jobs.places import Place, write_durably

MARKER = "millrace.json"

FORMAT = 1
"""Number of the format of what Millrace writes into checkpoints; one more when earlier versions would misread it."""


@dataclass(frozen=True)
class Versions:
    """The versions that continued a checkpoint last: those of Millrace and Spark, and of Millrace's format."""

    format: int
    millrace: str
    spark: str

    def __str__(self) -> str:
        return f"Millrace {self.millrace}, Spark {self.spark}"

    @classmethod
    def present(cls) -> Self:
        """Return the versions that are installed."""
        return cls(FORMAT, version("millrace"), version("pyspark"))

    @classmethod
    def read(cls, found: Mapping[str, Any]) -> Self:
        """Return the versions that a marker records."""
        return cls(int(found["format"]), str(found["millrace"]), str(found["spark"]))

    def require_readable(self, root: Place) -> None:
        """Refuse a checkpoint that a later version has continued, in a form that this one would misread.

        Spark reads checkpoints of its earlier versions, and not those of later ones; patch releases change no format.

        Raises:
            MillraceError: the format is later than this one, or so is Spark's minor version.
        """
        mine, continued = type(self).present(), f"has continued the checkpoint {root}"
        if self.format > mine.format:
            message = f"Millrace {self.millrace} {continued}, in a format that {mine.millrace} does not read"
            later = f"Millrace {self.millrace}"
        elif _minor(self.spark) > _minor(mine.spark):
            message = f"Spark {self.spark} {continued}, and Spark {mine.spark} does not read what it writes"
            later = f"Millrace {self.millrace}, which has that Spark,"
        else:
            return
        hint = f"run the query with {later} or a later version, or start over with {ANOTHER_CHECKPOINT}"
        raise MillraceError(Problem(message, hint, field="spec.checkpoint"))


def _minor(release: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall("[0-9]+", release)[:2])


class Renumbered(NamedTuple):
    """The last batch of Spark's log after the state was rewritten, by that batch, and the one that sinks know."""

    batch: int
    results: int


class ExpectedLayout(NamedTuple):
    """The layout of a state in a folder that is about to be put in force, with the numbers of its last batch.

    So the layout changes in the moment in which the folder gets its name.
    """

    folder: str
    layout: Mapping[str, Any]
    renumbered: Renumbered


@dataclass(frozen=True)
class Marker:
    """The file ``millrace.json``: the identity of a checkpoint, and the query of its last run, without a status.

    ``id`` is generated when the checkpoint is created, and identifies it to other systems. ``layout`` describes its
    state, once that is known. ``released`` is the batch after which the state was last found to hold no results back.
    ``versions`` is None in checkpoints that were written before versions were recorded. ``renumbered`` is of the last
    change of state partitions, and counts as long as Spark's log ends with its batch. ``expected`` is only written: a
    marker that is read has its layout if the folder is in force.
    """

    id: str
    query: StreamQuery
    state_partitions: int
    layout: Mapping[str, Any] | None = None
    released: int | None = None
    versions: Versions | None = None
    renumbered: Renumbered | None = None
    expected: ExpectedLayout | None = None

    @classmethod
    def read(cls, root: Place) -> Self | None:
        """Return the marker of a checkpoint, or None if it has none.

        Raises:
            MillraceError: the marker is damaged, or of a later version.
        """
        path = root / MARKER
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            versions = Versions.read(content["versions"]) if content.get("versions") else None
            if versions is not None:
                versions.require_readable(root)
            query = StreamQuery.model_validate(content["query"])
            partitions = int(content["statePartitions"])
            renumbered = Renumbered(*map(int, content["renumbered"])) if content.get("renumbered") else None
            layout, released = content.get("layout"), content.get("released")
            if content.get("expected") and isinstance(root, Path):
                folder, expected, numbers = content["expected"]
                if folder_in_force(root).name == folder:
                    layout, renumbered = expected, Renumbered(*map(int, numbers))
            return cls(content["id"], query, partitions, layout, released, versions, renumbered)
        except FileNotFoundError:
            return None
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"]))
            raise damaged(path, f"this version does not read its query, {field}: {first['msg']}") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise damaged(path, "it is not what Millrace writes there") from None

    def before_copy(self, spark: Place, numbers: Renumbered, layout: Mapping[str, Any] | None) -> Self:
        """Return the marker to write before a changed copy takes the place of ``spark``, maybe with another layout."""
        if layout is None or not isinstance(spark, Path):
            return replace(self, renumbered=numbers, expected=None)
        return replace(self, expected=ExpectedLayout(place_of_copy(spark).name, layout, numbers))

    def write(self, root: Place) -> None:
        """Replace the marker atomically and durably: a checkpoint without its marker is useless."""
        content = {
            "id": self.id,
            "versions": None if self.versions is None else asdict(self.versions),
            "statePartitions": self.state_partitions,
            "layout": self.layout,
            "released": self.released,
            "renumbered": self.renumbered,
            **({} if self.expected is None else {"expected": self.expected}),
            "query": self.query.to_document(),
        }
        write_durably(root / MARKER, json.dumps(content, indent=1).encode())


def checkpoint_above(path: Path) -> Path | None:
    """Return the checkpoint that a file or folder is, or would be, within or at; None if it is in none."""
    real = Path(os.path.realpath(path))
    return next((folder for folder in (real, *real.parents) if (folder / MARKER).is_file()), None)
