"""The question in Quix Streams: a tumbling window with a reducer of its own, exactly once.

python quix_peer.py

Run it as often as there are cores: the processes share the topic. Servers, source, sink, the application's name, a
folder and the commit interval in seconds come from the environment.
"""

import os
from collections import Counter
from datetime import UTC, datetime, timedelta

from quixstreams import Application

app = Application(
    broker_address=os.environ["SERVERS"],
    consumer_group=os.environ["NAME"],
    auto_offset_reset="earliest",
    commit_interval=float(os.environ["INTERVAL"]),
    state_dir=os.environ["FOLDER"],
    processing_guarantee="exactly-once",
)
source = app.topic(
    os.environ["SOURCE"],
    timestamp_extractor=lambda value, *_: int(datetime.fromisoformat(value["at"]).timestamp() * 1000),
)
sink = app.topic(os.environ["SINK"])


def first(record):
    """Return the state after a window's first record."""
    return {"counts": {record["value"]: 1}, "n": 1, "latest": record["at"]}


def update(state, record):
    """Return the state after another record."""
    counts = state["counts"]
    counts[record["value"]] = counts.get(record["value"], 0) + 1
    return {"counts": counts, "n": state["n"] + 1, "latest": max(state["latest"], record["at"])}


def result(window, key, *_):
    """Return the row of a window."""
    state, since = window["value"], datetime.fromtimestamp(window["start"] / 1000, UTC)
    top = [value for value, _ in Counter(state["counts"]).most_common(3)]
    return {"since": since.isoformat(), "key": key, "n": state["n"], "latest": state["latest"], "top": top}


windows = app.dataframe(source).group_by("key").tumbling_window(timedelta(seconds=10), grace_ms=timedelta(seconds=5))
windows.reduce(update, first).current().apply(result, metadata=True).to_topic(sink)
app.run()
