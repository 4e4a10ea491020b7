"""How the records of a source arrive: in files, as a recording, or in a topic."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .avro import writer_schema
from .messages import cluster, make_topic, messages_of, topic_of, write_messages
from .tables import KEY, TIMESTAMP, Table
from .writers import Spelling, write_table

FILES, REPLAY, KAFKA = "files", "replay", "kafka"


@dataclass(frozen=True)
class Arrival:
    """The kind of a source; for a topic its partitions, and the most records of a batch, 0 without a limit."""

    kind: str = FILES
    partitions: int = 1
    most: int = 0

    def field(self, table: Table, spelling: Spelling, folder: Path, within: Path) -> dict[str, Any]:
        """Return the fields of the source that say where its records are; paths are relative to a folder."""
        place = within / "in" / table.name
        if self.kind == KAFKA:
            kafka: dict[str, Any] = {"bootstrapServers": cluster().bootstrap, "topic": topic_of(folder, table.name)}
            kafka |= {"maxRecordsPerBatch": self.most} if self.most else {}
            metadata = any(column.name in (KEY, TIMESTAMP) for column in table.columns)
            kafka |= {"includeMetadata": True} if metadata else {}
            avro = {"avro": {"writerSchema": writer_schema(table, spelling)}} if spelling.format == "avro" else {}
            return {"kafka": kafka, "format": spelling.format, **avro}
        files: dict[str, Any] = {"path": str(place), "format": spelling.format, **spelling.options}
        if self.kind == REPLAY:
            recording = {"path": str(place / f"000{spelling.suffix}"), "timeColumn": table.time.name}
            return {"replay": files | recording}
        if not table.at_once and not table.static:
            files["maxFilesPerBatch"] = 1
        return {"files": files}

    def deliver(self, table: Table, spelling: Spelling, folder: Path, numbers: Iterable[int], run: int) -> None:
        """Write the files with these numbers, or their records to the topic, which the first run makes."""
        if self.kind != KAFKA:
            write_table(table, spelling, folder / "in" / table.name, numbers)
            return
        topic = topic_of(folder, table.name)
        if run == 0:
            make_topic(topic, self.partitions, compacted=bool(table.key))
        chance = random.Random(spelling.seed + run)
        write_messages(topic, messages_of(table, spelling, numbers), self.partitions, chance)


def draw_arrivals(
    chance: random.Random, shape: str, count: int, without: frozenset[str], *, at_once: bool, late: bool
) -> tuple[Arrival, ...]:
    """Return how the records of each source arrive, mostly all in the same way.

    Which messages are in a batch is only sure if it is all of them, so that none comes late here; and a recording is
    one batch. Messages of several partitions are read in no order.
    """
    kinds = [FILES] * 3
    if shape != "doubtful":
        kinds += [KAFKA] * 2 if KAFKA not in without and not late else []
        kinds += [REPLAY] if REPLAY not in without and at_once else []
    most = 0 if at_once else chance.choice([1, 3, 10])
    kind = chance.choice(kinds)
    arrival = Arrival(kind, chance.choice([1, 1, 3]) if at_once else 1, most) if kind == KAFKA else Arrival(kind)
    if shape == "table join" and kind == REPLAY:
        return arrival, Arrival()
    return tuple(arrival if chance.random() < 0.8 else Arrival() for _ in range(count))
