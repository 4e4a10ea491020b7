"""The question in Bytewax: state by key, with windows by hand, since its own windows emit when they close only.

python -m bytewax.run bytewax_peer:flow -i 0 -a "HOST:PORT;HOST:PORT" -r FOLDER -s SECONDS

Run it once for each core, with its number. It processes records at least once. Servers, source and sink come from the
environment.
"""

import json
import os
from collections import Counter
from datetime import datetime, timedelta

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSinkMessage
from bytewax.connectors.kafka import operators as kop
from bytewax.dataflow import Dataflow

SERVERS, SOURCE, SINK = os.environ["SERVERS"], os.environ["SOURCE"], os.environ["SINK"]
GRACE = timedelta(seconds=15)


class KeyWindows(op.StatefulBatchLogic):
    """The windows of one key."""

    def __init__(self, windows):
        self.windows = windows

    def on_batch(self, records):
        changed = set()
        for record in records:
            at = datetime.fromisoformat(record["at"])
            since = at.replace(second=at.second // 10 * 10, microsecond=0)
            counts, latest = self.windows.get(since, (Counter(), at))
            counts[record["value"]] += 1
            self.windows[since] = counts, max(at, latest)
            changed.add(since)
        newest = max(self.windows)
        results = [result(records[0]["key"], since, *self.windows[since]) for since in sorted(changed)]
        self.windows = {since: window for since, window in self.windows.items() if since > newest - GRACE}
        return results, self.RETAIN

    def snapshot(self):
        return dict(self.windows)


def result(key, since, counts, latest):
    """Return the message of a window."""
    row = {"since": since.isoformat(), "key": key, "n": counts.total(), "latest": latest.isoformat()}
    row["top"] = [value for value, _ in counts.most_common(3)]
    return KafkaSinkMessage(key.encode(), json.dumps(row).encode())


flow = Dataflow("top-values")
messages = kop.input("read", flow, brokers=[SERVERS], topics=[SOURCE])
records = op.map("parse", messages.oks, lambda message: json.loads(message.value))
by_key = op.key_on("key", records, lambda record: record["key"])
results = op.stateful_batch("top", by_key, lambda windows: KeyWindows(windows or {}))
kop.output("write", op.map("unkey", results, lambda pair: pair[1]), brokers=[SERVERS], topic=SINK)
