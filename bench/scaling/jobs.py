"""The measured queries, and streams of any size and skew for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import yaml

from bench.key_streams import zipf_shares
from bench.recorded_queries import QUERIES, stream_query
from examples.flights import flights
from millrace_api.model.streamquery import StreamQuery

KEYS = 10_000
_EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "01-delays-by-destination.yaml"


@dataclass(frozen=True)
class MeasuredJob:
    """A query, its source's name, its partitioning algorithm, and its stream by rows per batch, batches and skew."""

    query: StreamQuery
    source: str
    algorithm: str
    stream: Callable[[int, int, float], pa.Table]

    @property
    def time_column(self) -> str:
        """The column with the event time."""
        watermark = self.query.spec.sources[self.source].watermark
        assert watermark is not None
        return watermark.column


def zipf(rows: int, batches: int, skew: float) -> pa.Table:
    """Return records with ``KEYS`` keys by Zipf(skew), 50 values, and a minute of event time per batch."""
    rng = np.random.default_rng(7)
    total = rows * batches

    def drawn(prefix: str, values: int, p: np.ndarray | None = None) -> pa.Array:
        words = pa.array([f"{prefix}{value}" for value in range(values)])
        return words.take(pa.array(rng.choice(values, size=total, p=p)))

    return pa.table(
        {
            "at": pa.array(np.arange(total, dtype=np.int64) * 60_000_000 // rows).cast(pa.timestamp("us", tz="UTC")),
            "key": drawn("key-", KEYS, zipf_shares(skew, KEYS)),
            "value": drawn("v", 50),
        }
    )


def resampled_flights(rows: int, batches: int, skew: float) -> pa.Table:
    """Draw real flights so that destinations have their real shares to the power of ``skew``; 1 changes nothing."""
    table = flights()
    counts = pc.value_counts(table.column("dest"))
    share = dict(zip(counts.field("values").to_pylist(), counts.field("counts").to_numpy(), strict=True))
    weight = np.array([share[dest] for dest in table.column("dest").to_pylist()], dtype=np.float64) ** (skew - 1)
    rng = np.random.default_rng(7)
    drawn = rng.choice(len(weight), size=rows * batches, p=weight / weight.sum())
    return table.take(pa.array(np.sort(drawn)))


def _flights() -> StreamQuery:
    """Return the first example, with results in every batch so that all batches are alike."""
    document = yaml.safe_load(_EXAMPLE.read_text(encoding="utf-8"))
    document["spec"]["emit"] = "OnUpdate"
    return StreamQuery.model_validate(document)


def _over_zipf(query: Mapping[str, object]) -> StreamQuery:
    return stream_query(query, parallelism={"initial": 4, "max": 16}, partitioner={"replicas": {"max": 8}})


_DIGESTS = {
    "python": {
        "aggregator": "bench.digests:Digests",
        "options": {"column": "value"},
        "groupBy": ["key"],
        "window": {"column": "at", "size": "60s"},
    }
}

JOBS: Mapping[str, MeasuredJob] = {
    "flights": MeasuredJob(_flights(), "flights", "hash", resampled_flights),
    "tumbling": MeasuredJob(_over_zipf(QUERIES["tumbling"]), "s", "hash", zipf),
    "python": MeasuredJob(_over_zipf(QUERIES["python"]), "s", "hash", zipf),
    "digests": MeasuredJob(_over_zipf(_DIGESTS), "s", "hash", zipf),
    "digests-pkg": MeasuredJob(_over_zipf(_DIGESTS), "s", "pkg", zipf),
}
