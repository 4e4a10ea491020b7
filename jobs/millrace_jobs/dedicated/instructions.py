"""What the driver instructs its replicas to do: the work, which a query fixes, and the plan, which changes with it."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millrace_api.model.sources import SourceSpec
from millrace_jobs.pipeline.projection import Projection
from millrace_jobs.plan.control import Pin
from millrace_jobs.sources.kafka.offsets import Offsets, of_position, to_position

DRIVER, WORK, PLAN = "driver", "work", "plan"
"""Keys of the records in the control topic that the driver writes: its id, what replicas do, and the plan."""


@dataclass(frozen=True)
class Work:
    """What the replicas of a query do, until the driver begins another generation.

    Attributes:
        generation: identifies the work; a replica of another generation is not listened to.
        source: name of the source.
        projection: the filter, keys and columns of the records that workers get.
        time_column: column of event time in the source, whose latest value is reported; empty without a window.
        interval: the batch interval in seconds.
        version: of the query's text that the records depend on; see ``version_of``.
        starts: where the generation begins in each raw partition; one that is not named begins at its first record.
        ends: where it stops in each raw partition; None without an end.
        first: offset in the topic of manifests from which on its manifests are.
        routed: Kafka's id of the routed topic; offsets in another one of the same name mean other packs.
    """

    generation: str
    source: str
    projection: Projection
    time_column: str
    interval: float
    version: str
    starts: Offsets
    ends: Offsets | None
    first: int
    routed: str

    def to_bytes(self) -> bytes:
        """Return the work as JSON."""
        content = vars(self) | {
            "projection": _projection_json(self.projection),
            "starts": to_position(self.starts),
            "ends": None if self.ends is None else to_position(self.ends),
        }
        return json.dumps(content).encode()

    @classmethod
    def of(cls, value: bytes) -> Work:
        """Return the work in a record of the control topic. Raises ValueError if there is none in it."""
        try:
            content: dict[str, Any] = json.loads(value)
            ends = content.pop("ends")
            return cls(
                projection=_projection(content.pop("projection")),
                starts=of_position(content.pop("starts")),
                ends=None if ends is None else of_position(ends),
                **content,
            )
        except (KeyError, TypeError, AttributeError, pa.ArrowInvalid) as error:
            raise ValueError(f"not the work of a replica: {error}") from None


@dataclass(frozen=True)
class Instructions:
    """What changes from interval to interval: the plan, and how far the job has read.

    Attributes:
        generation: the generation that they are for.
        pin: the plan of the next intervals.
        consumed: offset in the topic of manifests before which the job has committed all; replicas that are too far
            ahead of it pause (back pressure).
        most: records that a replica may put into one manifest, as far as the job's measured capacity goes.
    """

    generation: str
    pin: Pin
    consumed: int
    most: int

    def to_bytes(self) -> bytes:
        """Return the instructions as JSON."""
        return json.dumps(vars(self) | {"pin": self.pin.to_json()}).encode()

    @classmethod
    def of(cls, value: bytes) -> Instructions:
        """Return the instructions in a record of the control topic. Raises ValueError if there are none in it."""
        try:
            content: dict[str, Any] = json.loads(value)
            return cls(pin=Pin.from_json(content.pop("pin")), **content)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not the instructions of a replica: {error}") from None


def version_of(source: SourceSpec, projection: Projection) -> str:
    """Return a digest of everything in a query that decides what its packs contain.

    Packs of another version are not read: a batch that began with them is read from the raw topics.
    """
    decoding = source.to_document()
    decoding.pop("kafka")  # servers and logins do not change records
    metadata = source.kafka is not None and source.kafka.include_metadata
    content = json.dumps([decoding, metadata, _projection_json(projection)], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _projection_json(projection: Projection) -> dict[str, Any]:
    """Return a projection without functions of the query's own: a replica imports nothing that a message names."""
    schema = base64.b64encode(projection.schema.serialize().to_pybytes()).decode()
    content = vars(projection) | {"schema": schema}
    del content["functions"]
    return content


def _projection(content: dict[str, Any]) -> Projection:
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(content.pop("schema"))))
    return Projection(columns=tuple((name, sql) for name, sql in content.pop("columns")), schema=schema, **content)
