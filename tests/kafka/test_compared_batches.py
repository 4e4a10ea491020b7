"""Two runs of a comparison over topics that grow meanwhile: the second has the batches of the first one."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lab import topics
from lab.kafka import Broker
from millrace_jobs.comparison.fixed_batches import BatchEnds, FirstSource, LaterSource
from millrace_jobs.sources.base import Position

from .sources import opened, slices

pytestmark = pytest.mark.kafka

MOST = 40


def log(folder: Path, number: int, position: Position) -> None:
    """Write what Spark's log has of a batch."""
    (folder / "offsets").mkdir(parents=True, exist_ok=True)
    line = json.dumps({"source": "trips", "position": position})
    (folder / "offsets" / str(number)).write_text(f"v1\n{{}}\n{line}", encoding="utf-8")


def test_a_later_run_reads_the_same_batches_of_a_topic_that_grows(
    broker: Broker, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic, ends = make_topic(partitions=3), tmp_path / "ends"
    topics.fill(broker, topic, [f"old-{number}" for number in range(150)])
    asked = opened(broker, tmp_path / "first", {"topic": topic, "startingOffsets": "Earliest"})
    position = asked.initial()
    asked.latest(position, everything=True)
    BatchEnds.add(ends, {"trips": position})
    first, batches = pickle.loads(pickle.dumps(FirstSource(asked, MOST, tmp_path / "enough"))), []
    topics.fill(broker, topic, [f"new-{number}" for number in range(100)])
    while (end := first.latest(position, everything=True)) != position:
        batches.append(sorted(row[0] for rows, _ in slices(first, position, end, 2) for row in rows))
        BatchEnds.add(ends, {"trips": end})
        position = end
    assert sorted(value for batch in batches for value in batch) == sorted(b"old-%d" % n for n in range(150))
    assert len(batches) >= 150 // MOST

    shutil.copytree(tmp_path / "first", tmp_path / "second")
    again = opened(broker, tmp_path / "second", {"topic": topic, "startingOffsets": "Earliest"})
    later = LaterSource(again, BatchEnds.read(ends), tmp_path)
    position, number = later.initial(), 0
    while (end := later.latest(position, everything=True, most=1)) != position:
        found = sorted(row[0] for rows, _ in slices(later, position, end, 2) for row in rows)
        assert found == batches[number]
        log(tmp_path / "spark", number, end)
        position, number = end, number + 1
    assert number == len(batches)
    assert not [group for group in topics.groups(broker) if topic in group]
