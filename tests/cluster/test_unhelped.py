"""Queries that more executors do not help: each is named by its condition, with the field that does help."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from code_packages import digest
from lab import topics
from lab.deployed import Deployed, document
from lab.installation import Installation
from lab.load import Load
from millrace_operator.resources.driver_config import CHECKPOINT

from . import slow_parts

pytestmark = [pytest.mark.cluster, pytest.mark.slow(minutes=15), pytest.mark.timeout(3600)]

RATE, KEYS, HOT = 50.0, 60, 0.4
"""Records per second, the number of their keys, and the share of the records that one of them has."""

SCALING = {"mode": "Active", "target": 0.3, "step": 0.1, "window": 3, "grace": 3}

FILES = "_data/records"
"""Folder of the claim with files for a query."""

COUNTS = "SELECT name, count(*) AS records FROM records GROUP BY name"
MANY_COUNTS = f"""
SELECT name, {", ".join(f"sum(CASE WHEN length(name) = {n} THEN 1 ELSE 0 END) AS of_{n}" for n in range(30))}
FROM records GROUP BY name
"""
"""Of thirty results: Spark plans them for every batch again, for much longer than it takes to count them."""


def waiting(**seconds: float) -> dict[str, Any]:
    """Return the query whose aggregator waits."""
    return {"python": {"aggregator": "slow_parts:SlowCount", "groupBy": ["name"], "options": seconds}}


@dataclass(frozen=True)
class Unhelped:
    """A query, as changes of the spec that all have, and what is said of it, beside the ``reason``."""

    reason: str
    said: tuple[str, ...]
    spec: dict[str, Any] = field(default_factory=dict)


CASES = (
    Unhelped(
        "HotKey",
        ("one key has ", "whose worker takes", "write spec.partitioner.algorithm: wchoices", "instead of hash"),
        {"query": waiting(record=0.02), "parallelism": {"initial": 4, "max": 8}},
    ),
    Unhelped(
        "TooFewStatePartitions",
        ("the tasks that merge into the state", "millrace state repartition FILE --partitions N"),
        {"query": waiting(merge=0.06), "parallelism": {"initial": 2, "max": 2}},
    ),
    Unhelped(
        "UndividedSource",
        ("one slice of the source has 100% of the records", "write smaller files to spec.sources.records"),
        {
            "sources": {
                "records": {
                    "files": {"path": f"{CHECKPOINT}/{FILES}", "format": "json", "maxFilesPerBatch": 1},
                    "schema": "name STRING",
                }
            },
            "query": {
                "functions": {"read_slowly": {"python": "slow_parts:read_slowly", "returns": "STRING"}},
                "sql": "SELECT read_slowly(name) AS name, count(*) AS records FROM records GROUP BY read_slowly(name)",
            },
        },
    ),
    Unhelped(
        "SlowSink",
        ("spec.sink.python writes for", "make what it writes to faster", "a longer spec.batchInterval"),
        {
            "query": {"sql": COUNTS},
            "partitioner": {"algorithm": "native"},
            "sink": {"python": {"write": "slow_parts:write_slowly", "options": {"seconds": 1.6}}},
        },
    ),
    Unhelped(
        "ShortInterval",
        ("planning and committing a batch take the driver", "write a spec.batchInterval of "),
        {
            "query": {"sql": MANY_COUNTS},
            "partitioner": {"algorithm": "native"},
            "batchInterval": "200ms",
            "scaling": SCALING | {"target": 0.1, "step": 0.05},  # which a fast machine exceeds, too
        },
    ),
)


@pytest.fixture
def load(installation: Installation, namespace: str) -> Iterator[Load]:
    """Records of which one key has two fifths."""
    topic = topics.make(installation.broker, f"{namespace}-records", 2)
    made = Load(installation.broker, topic, RATE, [HOT / (1 - HOT) * (KEYS - 1), *[1.0] * (KEYS - 1)])
    yield made
    made.stop()


@contextmanager
def compressed_files(folder: Path) -> Iterator[None]:
    """Meanwhile, a compressed file with as many records as come in a batch arrives every three seconds."""
    folder.mkdir(parents=True)
    done = threading.Event()
    lines = "".join(json.dumps({"name": f"key-{number % KEYS}"}) + "\n" for number in range(150))

    def write() -> None:
        number = 0
        while not done.wait(3.0):
            partial, number = folder / f".{number}.json.gz", number + 1
            partial.write_bytes(gzip.compress(lines.encode()))
            partial.rename(folder / f"{number}.json.gz")

    thread = threading.Thread(target=write, name="files", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def finding(query: Deployed) -> dict[str, Any]:
    """Wait until the condition is true, and return it."""

    def found(_: dict[str, Any]) -> bool:
        return query.condition("ScalingIneffective").get("status") == "True"

    query.wait(found, f"{query.name}: something is named")
    return query.condition("ScalingIneffective")


def test_each_cause_for_which_executors_do_not_help_is_named_with_its_remedy(
    installation: Installation, namespace: str, load: Load
) -> None:
    module = Path(slow_parts.__file__).read_text(encoding="utf-8")
    code = {"configMap": {"name": "slow-parts-1", "key": "slow_parts.py"}, "sha256": digest(module.encode())}
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "slow-parts-1"}, "immutable": True}
    installation.kubectl(
        "-n", namespace, "create", "-f", "-", document=config_map | {"data": {"slow_parts.py": module}}
    )
    broker = installation.broker
    source = {"bootstrapServers": broker.bootstrap, "topic": f"{namespace}-records", "startingOffsets": "Latest"}
    base: dict[str, Any] = {
        "sources": {"records": {"kafka": source, "schema": "name STRING"}},
        "sink": {"python": {"write": "slow_parts:write_slowly", "options": {"seconds": 0}}},
        "code": [code],
        "batchInterval": "4s",
        "partitioner": {"algorithm": "hash", "replicas": {"initial": 2, "max": 8}},
        "parallelism": {"initial": 2, "max": 8},
        "executors": {"initial": 1, "min": 1, "max": 2, "cores": 2},
        "scaling": SCALING,
    }
    with compressed_files(installation.cluster.volume_folder(namespace) / FILES):
        for case in CASES:
            query = Deployed(installation, namespace, case.reason.lower())
            query.apply(document(query.name, **base | case.spec))
            query.wait_until_settled()
            named = finding(query)
            print(f"{named['reason']}: {named['message']}; {query.status.get('lastScaling')}", flush=True)
            assert named["reason"] == case.reason
            assert [text for text in case.said if text not in named["message"]] == []
            assert case.reason in query.events
            query.kubectl("delete", "sq", query.name)
