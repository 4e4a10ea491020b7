"""The metrics of requests that a query makes of an object store, beside what the store's server counts."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from lab.parts.maven_jars import S3_JARS
from lab.s3_server import BUCKET, S3Server, running_s3
from lab.waiting import wait_until
from millrace_jobs.run.store_traffic import CLIENTS
from millrace_jobs.stores.objects import ObjectPath
from millrace_jobs.stores.requests import REQUESTS, StoreCounters, counting_in
from millrace_jobs.stores.spark import S3_CLIENT
from spark.answers import with_zones
from spark.cli import fields
from spark.live_pages import metrics

from .store_runs import Run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """A server of its own, whose requests are this test's."""
    with running_s3(tmp_path / "s3") as server:
        for name, value in {**server.environment, S3_CLIENT.variable: str(S3_JARS.find())}.items():
            monkeypatch.setenv(name, value)
        yield server


def test_a_process_counts_what_the_server_does(tmp_path: Path, s3: S3Server) -> None:
    place = ObjectPath.of(f"s3a://{BUCKET}/counted")
    with counting_in(tmp_path / "counters") as counters:
        for number in range(1001):
            (place / f"{number:04}").write_bytes(b"12345")
        assert len(list(place.objects())) == 1001
        assert len(list(place.iterdir())) == 1001
        assert len(list(place.objects_after("counted/1000"))) == 0
        assert (place / "0007").read_bytes() == b"12345"
        (place / "0007").copy_to(place / "copy")
        assert not (place / "absent").exists()
        with closing((place / "large").writer()) as writer:
            writer.write(bytes(25 << 20))
        with closing((place / "just large").writer()) as writer:
            writer.write(bytes(10 << 20))
        (place / "absent").remove([])
        assert (place / "large").read_range(7, 100) == bytes(100)
        place.remove_all()
        found = StoreCounters(counters).counted()
    lists = 2 + 2 + 1 + 2
    # a copy is a PUT; two requests that delete up to a thousand objects, and what begins and ends large ones, are POST
    assert s3.requests == Counter(PUT=1001 + 1 + 3 + 1, LIST=lists, GET=2, HEAD=1, POST=2 + 2 + 2)
    requests = Counter(PUT=1001 + (3 + 2) + (1 + 2), COPY=1, LIST=lists, GET=2, HEAD=1, DELETE=2)
    assert found == requests + Counter(read=105, written=1001 * 5 + (35 << 20))


@pytest.mark.in_turn
def test_requests_of_a_query_are_counted_by_client_and_kind(tmp_path: Path, s3: S3Server) -> None:
    place = ObjectPath.of(f"s3a://{BUCKET}/query")
    run = Run(tmp_path, place / "checkpoint")
    query = yaml.safe_load(run.file.read_text(encoding="utf-8"))
    source = query["spec"]["sources"]["events"]
    del source["replay"]
    source["files"] = {"path": str(place / "inbox"), "format": "parquet"}
    query["spec"]["sink"] = {"files": {"path": str(place / "results")}}
    run.file.write_text(yaml.safe_dump(query), encoding="utf-8")
    process = run.start()
    files = []
    for part in range(12):
        content = io.BytesIO()
        pq.write_table(with_zones(run.events.slice(part * 1000, 1000)), content)
        files.append(content.getvalue())
        (place / "inbox" / f"{part:02}.parquet").write_bytes(files[-1])
        wait_until(lambda: f"\nbatch={part}" in process.said, lambda: process.said[-2000:], seconds=120)  # noqa: B023
    base = fields(process.said)["metrics"].removesuffix("/metrics")

    def shares() -> dict[str, float]:
        """Return what the metrics have, as a share of what the server has counted,."""
        series = {name.removeprefix("millrace_store_"): value for name, value in metrics(base).items()}
        seen = {kind: sum(series[f"requests_total {client} {kind}"] for client in CLIENTS) for kind in REQUESTS}
        made = s3.requests
        seen["PUT"] += seen.pop("COPY") + len(files)  # the test's own are not among the query's
        made["DELETE"] += made.pop("POST", 0)  # all of them deletions: no object is large
        return {kind: seen[kind] / max(made[kind], 1) for kind in sorted({*seen, *made})}

    # those of file systems that Spark closes when it has started are not read
    wait_until(lambda: all(0.8 < share <= 1 for share in shares().values()), lambda: str(shares()), seconds=120)
    written = [metrics(base)[f"millrace_store_bytes_total {client} written"] for client in CLIENTS]
    assert min(written) > 0
    assert metrics(base)["millrace_store_bytes_total millrace read"] >= sum(map(len, files))
    process.kill()
