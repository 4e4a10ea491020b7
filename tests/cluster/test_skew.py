"""A key becomes hot: ``auto`` exchanges the partitioner in the running job, and needs no more executors for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from lab import topics
from lab.deployed import Deployed
from lab.installation import Installation
from lab.load import Load
from lab.parts.millrace_images import EXAMPLE
from lab.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.slow(minutes=15), pytest.mark.timeout(1800)]

RATE, KEYS, HOT = 50.0, 300, 0.4
"""Records per second, how many keys they have, and the share that one of them comes to have."""

INTERVAL, TARGET = 20.0, 0.9
EXECUTORS, CORES, WORKERS = 3, 2, 6

RECORD, CALL = 30_000, 50_000
"""Microseconds that the aggregator waits for a record, and for each key that a worker has in a batch.

In a batch a worker with its sixth of records and keys waits for 7.5 s, and for 9 s or more where keys are on several
workers; one that has all of the hot key besides its other keys, for over 17 s.
"""


@pytest.fixture
def load(installation: Installation, namespace: str) -> Iterator[Load]:
    """Records whose keys are equally frequent; none yet."""
    topic = topics.make(installation.broker, f"{namespace}-events", 4)
    made = Load(installation.broker, topic, 0.0, [1.0] * KEYS)
    yield made
    made.stop()


def scores(installation: Installation, namespace: str) -> dict[str, Any]:
    """The query of the example for clusters, with an aggregator that minds hot keys, and ``auto``."""
    found: dict[str, Any] = yaml.safe_load((EXAMPLE / "query.yaml").read_text(encoding="utf-8"))
    spec, broker = found["spec"], installation.broker
    results = topics.make(broker, f"{namespace}-scores", 2, cleanup_policy="compact")
    spec["sources"]["events"]["kafka"] |= {"bootstrapServers": broker.bootstrap, "topic": f"{namespace}-events"}
    spec["sink"]["table"] = {"bootstrapServers": broker.bootstrap, "topic": results}
    options = {"column": "name", "microseconds": RECORD, "call": CALL}
    spec["query"]["python"] |= {"aggregator": "paced:PacedCount", "options": options}
    spec |= {
        "batchInterval": f"{INTERVAL:.0f}s",
        "partitioner": {"algorithm": "auto", "replicas": {"initial": 2, "max": 2}},
        "parallelism": {"initial": WORKERS, "max": WORKERS},
        "scaling": {"mode": "Active", "target": TARGET, "window": 6},
    }
    spec["executors"] |= {"initial": EXECUTORS, "min": EXECUTORS, "max": EXECUTORS + 2, "cores": CORES}
    del spec["executors"]["podTemplate"]["spec"]["containers"][0]["resources"]["limits"]
    return found


def test_a_key_that_becomes_hot_needs_another_partitioner_and_no_more_executors(
    installation: Installation, namespace: str, load: Load
) -> None:
    document = scores(installation, namespace)
    query = Deployed(installation, namespace, document["metadata"]["name"])
    query.apply(document)
    query.wait_until_settled()
    load.rate = RATE
    wait_until(lambda: is_calm(query, load) and batches(query) >= 12, "it keeps up, and auto has chosen", 480.0)
    before, driver, epoch = query.plan["algorithm"], query.driver["metadata"]["uid"], query.plan["epoch"]

    load.shares[0] = HOT / (1 - HOT) * (KEYS - 1)
    seconds = 600.0  # of a backlog that has to be worked off
    wait_until(lambda: query.plan["algorithm"] != before, "auto chooses another partitioner")
    wait_until(lambda: is_calm(query, load), "it keeps up again", seconds)
    after = query.plan["algorithm"]
    assert f"auto: from {before} to " in query.log
    assert (query.plan["epoch"], query.plan["executors"], len(query.executors)) == (epoch, EXECUTORS, EXECUTORS)
    assert (query.driver["metadata"]["uid"], query.runs) == (driver, 1)

    load.stop()
    results = document["spec"]["sink"]["table"]["topic"]

    def counted() -> dict[str, int]:
        return {row["name"]: row["records"] for row in topics.rows(installation.broker, results)}

    wait_until(lambda: counted() == dict(load.written), "every record is counted once")
    print(
        f"{before} -> {after}", *(line for line in query.log.splitlines() if "auto:" in line or " W=" in line), sep="\n"
    )


def batches(query: Deployed) -> int:
    """How many its driver has finished."""
    return sum(" W=" in line for line in query.log.splitlines())


def is_calm(query: Deployed, load: Load) -> bool:
    """Whether batches are below the target, and nothing waits but what has just come."""
    state = query.status.get("load", {})
    return bool(state.get("utilization", 1.0) < TARGET and state["lag"] <= 2 * INTERVAL * load.rate)
