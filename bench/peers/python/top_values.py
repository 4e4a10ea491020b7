"""The question for Millrace: the aggregator that ``top_values.yaml`` names."""

from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc

TIME = pa.timestamp("us", "UTC")


class TopValues:
    """The number of records, the newest time and the three most frequent values."""

    columns = ("at", "value")
    state_schema = pa.schema({"counts": pa.map_(pa.string(), pa.int64()), "latest": TIME})
    result_schema = pa.schema({"n": pa.int64(), "latest": TIME, "top": pa.list_(pa.string())})

    def init(self):
        return {"counts": {}, "latest": None}

    def update(self, state, batch):
        counts = Counter(batch.column("value").to_pylist())
        return self.merge(state, {"counts": counts, "latest": pc.max(batch.column("at")).as_py()})

    def merge(self, a, b):
        counts = Counter(dict(a["counts"]))
        counts.update(dict(b["counts"]))
        latest = max(filter(None, (a["latest"], b["latest"])), default=None)
        return {"counts": list(counts.items()), "latest": latest}

    def finish(self, state):
        counts = Counter(dict(state["counts"]))
        top = [value for value, _ in counts.most_common(3)]
        return {"n": counts.total(), "latest": state["latest"], "top": top}
