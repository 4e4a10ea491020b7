"""The line from the driver to its sources: a small file that the sources read before each batch.

Spark runs a Python data source in a process of its own. The driver writes what the next batch shall run under
into a file beside it; the source reads it when Spark asks for the batch's end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from millrace_jobs.plan.pin import Pin


@dataclass(frozen=True)
class Control:
    """What the driver wants from its sources next.

    ``draining``: offer nothing new, so that the query comes to rest after the batch it is in.
    ``closing_time``: event time in microseconds which, as the last record, closes every window; None before the
    input has ended.
    ``most``: by source, how many records the next batch may have of it; a source that is not named has no limit.
    """

    pin: Pin
    draining: bool = False
    closing_time: int | None = None
    most: Mapping[str, int] = field(default_factory=dict)


def write_control(path: Path, control: Control) -> None:
    """Replace the file in one step."""
    content = asdict(control) | {"pin": control.pin.to_json()}
    partial = path.with_suffix(".new")
    partial.write_text(json.dumps(content), encoding="utf-8")
    partial.replace(path)


def read_control(path: Path) -> Control:
    """What the driver wrote last."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return Control(Pin.from_json(content.pop("pin")), **content)
