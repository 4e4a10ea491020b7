"""The control file: the channel from the driver to its sources, which read it before each batch.

Spark runs a Python data source in a separate process. The driver writes what the next batch runs under to a small file,
and the source reads it when Spark asks for the end offset of the batch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from millrace_jobs.plan.pin import Pin


@dataclass(frozen=True)
class Control:
    """The driver's instructions to its sources for the next batch.

    Attributes:
        pin: the plan that the batch runs under.
        draining: whether to offer nothing new, so that the query comes to rest after its current batch.
        closing_time: event time in microseconds that, as the last record, closes every window; None before the input
            has ended.
        most: the maximum number of records in the next batch, by source; a source that is not named has no limit.
    """

    pin: Pin
    draining: bool = False
    closing_time: int | None = None
    most: Mapping[str, int] = field(default_factory=dict)


def write_control(path: Path, control: Control) -> None:
    """Replace the control file atomically."""
    content = asdict(control) | {"pin": control.pin.to_json()}
    partial = path.with_suffix(".new")
    partial.write_text(json.dumps(content), encoding="utf-8")
    partial.replace(path)


def read_control(path: Path) -> Control:
    """Read what the driver wrote last."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return Control(Pin.from_json(content.pop("pin")), **content)
