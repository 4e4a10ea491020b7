"""The question in Pathway: a tumbling window with a reducer of its own, at least once.

pathway spawn --processes 2 python pathway_peer.py

Servers, source, sink, the application's name, a folder and the interval in milliseconds come from the environment. A
changed result is written with a row that takes back the one before.
"""

import os
from collections import Counter

import pathway as pw

SETTINGS = {
    "bootstrap.servers": os.environ["SERVERS"],
    "group.id": os.environ["NAME"],
    "auto.offset.reset": "earliest",
}


class TopicRecord(pw.Schema):
    """A record of the source."""

    at: str
    key: str
    value: str


class ValueCounts(pw.BaseCustomAccumulator):
    """The counts of a window's values."""

    def __init__(self, counts):
        self.counts = counts

    @classmethod
    def from_row(cls, row):
        return cls(Counter(row))

    def update(self, other):
        self.counts.update(other.counts)

    def compute_result(self) -> str:
        return ",".join(value for value, _ in self.counts.most_common(3))


top_values = pw.reducers.udf_reducer(ValueCounts)
records = pw.io.kafka.read(
    SETTINGS,
    os.environ["SOURCE"],
    schema=TopicRecord,
    format="json",
    autocommit_duration_ms=int(os.environ["INTERVAL"]),
)
records = records.with_columns(time=pw.this.at.dt.strptime("%Y-%m-%dT%H:%M:%S.%fZ"))
windows = records.windowby(
    pw.this.time,
    window=pw.temporal.tumbling(pw.Duration(seconds=10)),
    behavior=pw.temporal.common_behavior(cutoff=pw.Duration(seconds=5)),
    instance=pw.this.key,
)
results = windows.reduce(
    since=pw.this._pw_window_start,
    key=pw.this._pw_instance,
    n=pw.reducers.count(),
    latest=pw.reducers.max(pw.this.at),
    top=top_values(pw.this.value),
)
pw.io.kafka.write(results, SETTINGS, os.environ["SINK"], format="json")
kept = pw.persistence.Config(
    pw.persistence.Backend.filesystem(os.environ["FOLDER"]), snapshot_interval_ms=int(os.environ["INTERVAL"])
)
pw.run(monitoring_level=pw.MonitoringLevel.NONE, persistence_config=kept)
