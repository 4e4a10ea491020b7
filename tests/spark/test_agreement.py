"""In a running query, several replicas keep a real stream's keys as much together as a single one does."""

from __future__ import annotations

import io
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millrace_research.papers.streams import real

from .streams import Stream

pytestmark = [pytest.mark.in_turn, pytest.mark.spark, pytest.mark.data]

WORKERS, ROWS = 16, 60_000
PLACINGS = [
    placing
    for algorithm in ("prompt", "am", "cam", "lm", "dalton")
    for placing in [(algorithm, WORKERS, 1), *[(algorithm, WORKERS, 8)] * 3]
]


def test_keys_stay_together_over_several_replicas(spark, data, tmp_path):
    data("caffeine_traces")
    batches = np.array_split(real("w106").keys[: ROWS * len(PLACINGS)].view(np.int64), len(PLACINGS))
    sql = "SELECT request, count(*) AS requests FROM events GROUP BY request"
    stream = Stream(spark, tmp_path, schema="request BIGINT", sql=sql)
    reports = stream.feed([(placing, _parquet(batch)) for placing, batch in zip(PLACINGS, batches, strict=True)])
    assert [(report.pin.algorithm, report.pin.workers, report.pin.replicas) for report in reports] == PLACINGS
    for algorithm, of_one in groupby(reports, key=lambda report: report.pin.algorithm):
        one, _, *several = [report.placement.cost().replication_factor for report in of_one]
        assert np.mean(several) < 1.1 * one, (algorithm, one, several)


def _parquet(keys):
    content = io.BytesIO()
    pq.write_table(pa.table({"request": keys}), content)
    return content.getvalue()
