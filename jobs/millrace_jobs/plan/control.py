"""The control file: the channel from the driver to its sources, which read it before each batch.

Spark runs a Python data source in a separate process. The driver writes what the next batch runs under to a small file,
and the source reads it when Spark asks for the end offset of the batch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from millrace_api.model.deployment import Placement


@dataclass(frozen=True)
class Pin:
    """The plan that a batch is pinned to, as part of its end offset: Spark writes it before the batch's first task.

    A retried task and a batch replayed after a crash get the same pin, and so route as before. ``policy`` is the batch
    whose learned state the replicas of this one start from (``policies``); None if they start without one.
    """

    epoch: int
    algorithm: str
    replicas: int
    workers: int
    parameters: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    policy: int | None = None
    placement: str = Placement.INLINE.value

    @property
    def is_dedicated(self) -> bool:
        """Whether replicas in processes of their own place the records."""
        return self.placement == Placement.DEDICATED

    def to_json(self) -> dict[str, Any]:
        """Return the pin in the form that the offset stores; ``Inline`` is left out, as before there was a choice."""
        stored = vars(self) | {"parameters": dict(self.parameters)}
        return stored if self.is_dedicated else {name: stored[name] for name in stored if name != "placement"}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Pin:
        """Return a pin from the form that ``to_json`` returns."""
        return cls(**stored)


@dataclass(frozen=True)
class Control:
    """The driver's instructions to its sources for the next batch.

    Attributes:
        pin: the plan that the batch runs under.
        draining: whether to offer nothing new, so that the query comes to rest after its current batch.
        closing_time: event time in microseconds that, as the last record, closes every window; None before the input
            has ended.
        most: the maximum number of records in the next batch, by source; a source that is not named has no limit.
        held: the sources that offer nothing yet, because others are to be read first.
        tables: the content of each static table that the batch joins, where a checkpoint has its contents.
    """

    pin: Pin
    draining: bool = False
    closing_time: int | None = None
    most: Mapping[str, int] = field(default_factory=dict)
    held: Sequence[str] = ()
    tables: Mapping[str, str] = field(default_factory=dict)


def contents_in(entry: str) -> dict[str, str]:
    """Return the content of each static table in a batch, by the batch's entry in Spark's offset log.

    Sources are planned one after another, and a source without new records keeps its offset. So offsets may name
    several contents, of which the newest counts.
    """
    found: dict[str, str] = {}
    for line in entry.splitlines()[2:]:
        offset = json.loads(line) if line != "-" else {}
        for name, content in offset.get("tables", {}).items():
            found[name] = max(content, found.get(name, ""))
    return found


def write_control(path: Path, control: Control) -> None:
    """Replace the control file atomically."""
    content = asdict(control) | {"pin": control.pin.to_json()}
    partial = path.with_suffix(".new")
    partial.write_text(json.dumps(content), encoding="utf-8")
    partial.replace(path)


def read_control(path: Path) -> Control:
    """Read what the driver wrote last."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return Control(Pin.from_json(content.pop("pin")), held=tuple(content.pop("held")), **content)
