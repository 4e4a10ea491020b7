"""The question for Millrace: the aggregator that ``top_values.yaml`` names."""

from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc


class TopValues:
    """The number of records, the newest time and the three most frequent values."""

    columns = ("at", "value")
    state_schema = pa.schema(
        [("values", pa.list_(pa.string())), ("counts", pa.list_(pa.int64())), ("latest", pa.timestamp("us", "UTC"))]
    )
    result_schema = pa.schema(
        [("n", pa.int64()), ("latest", pa.timestamp("us", "UTC")), ("top", pa.list_(pa.string()))]
    )

    def init(self):
        return {"values": [], "counts": [], "latest": None}

    def update(self, state, batch):
        counted = batch.column("value").value_counts()
        values, counts = counted.field("values").to_pylist(), counted.field("counts").to_pylist()
        return self.merge(state, {"values": values, "counts": counts, "latest": pc.max(batch.column("at")).as_py()})

    def merge(self, a, b):
        counts = Counter(dict(zip(a["values"], a["counts"], strict=True)))
        counts.update(dict(zip(b["values"], b["counts"], strict=True)))
        latest = max(filter(None, (a["latest"], b["latest"])), default=None)
        return {"values": list(counts), "counts": list(counts.values()), "latest": latest}

    def finish(self, state):
        counts = Counter(dict(zip(state["values"], state["counts"], strict=True)))
        top = [value for value, _ in counts.most_common(3)]
        return {"n": counts.total(), "latest": state["latest"], "top": top}
