"""Replicas in processes of their own keep a real stream's keys as much together as a single replica does."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from numpy.typing import NDArray

from lab import topics
from lab.kafka import Broker
from millrace_jobs.pipeline.projection import Projection
from millrace_jobs.plan.control import Pin
from millrace_research.papers.streams import real

from .replicas import Placement

pytestmark = [pytest.mark.kafka, pytest.mark.data, pytest.mark.in_turn, pytest.mark.timeout(1500)]

REPLICAS, WORKERS = 8, 16
INTERVAL, ROWS = 2.0, 60_000
INTERVALS, LEARNING = 12, 4
"""Intervals of records under each plan, and how many of them pass before replicas are measured."""

ALGORITHMS = ("prompt", "am", "cam", "lm", "dalton")
PACK = pa.schema([("k0", pa.int64())])
PROJECTION = Projection("", (("k0", "`key`"),), PACK, 1)
_STEPS = 20
"""Parts of an interval's records, which come one after another."""


class Placed(NamedTuple):
    """How records were placed, averaged over intervals."""

    split_ratio: float
    """Distinct pairs of a key and a worker, per distinct key."""
    imbalance: float
    """Records of the busiest worker, as a multiple of the average."""


def test_keys_stay_together_and_loads_even(data: Callable[[str], Path], own_broker: Broker, tmp_path: Path) -> None:
    data("caffeine_traces")
    keys = real("w106").keys[: INTERVALS * ROWS].view(np.int64)
    topics.make(own_broker, "raw", REPLICAS)
    pins = [
        Pin(epoch, algorithm, replicas, WORKERS, placement="Dedicated")
        for epoch, (replicas, algorithm) in enumerate((m, each) for m in (1, REPLICAS) for each in ALGORITHMS)
    ]
    with Placement(own_broker, "raw", tmp_path, interval=INTERVAL, schema="key BIGINT") as placement:
        placement.begin(pins[0], projection=PROJECTION, time_column="")
        for number, pin in enumerate(pins):
            placement.instruct(pin=pin, consumed=placement.admin.end(placement.topics.manifests))
            placement.start(*(index for index in range(pin.replicas) if index not in placement.processes))
            feed(placement, keys)
            placement.wait_for((number + 1) * len(keys))
        found = placed(placement)
    pairs = {each: [found[pin.epoch] for pin in pins if pin.algorithm == each] for each in ALGORITHMS}
    for algorithm, (one, several) in pairs.items():
        print(f"{algorithm}: {one} with one replica, {several} with {REPLICAS}")
    for algorithm, (one, several) in pairs.items():
        assert several.split_ratio < 1.1 * one.split_ratio, (algorithm, one, several)
        assert several.imbalance < 1.1 * one.imbalance, (algorithm, one, several)


def feed(placement: Placement, keys: NDArray[np.int64]) -> None:
    """Write records at the rate of ``ROWS`` per interval, dealt to the partitions in turn."""
    producer = Producer({"bootstrap.servers": placement.broker.bootstrap, "linger.ms": 5})
    for step in np.array_split(keys, INTERVALS * _STEPS):
        next_step = time.monotonic() + INTERVAL / _STEPS
        for number, key in enumerate(step.tolist()):
            producer.produce(placement.topic, f'{{"key":{key}}}', partition=number % REPLICAS)
        assert producer.flush(topics.PATIENCE) == 0
        time.sleep(max(next_step - time.monotonic(), 0.0))


def placed(placement: Placement) -> dict[int, Placed]:
    """Return how the records in the routed topic were placed under each plan, by its epoch."""
    packs: dict[int, dict[int, list[tuple[int, NDArray[np.int64]]]]] = defaultdict(lambda: defaultdict(list))
    for message in topics.committed(placement.broker, placement.topics.routed):
        epoch, batch = (int(message.headers[f"millrace-{name}"] or b"") for name in ("epoch", "batch"))
        block = pa.ipc.read_record_batch(pa.py_buffer(message.value or b""), PACK)
        packs[epoch][batch].append((message.partition, block["k0"].to_numpy()))
    return {epoch: _average(batches) for epoch, batches in packs.items()}


def _average(batches: dict[int, list[tuple[int, NDArray[np.int64]]]]) -> Placed:
    """Return the average over the intervals after those in which replicas learn, without the last, which are short."""
    measured = []
    for number in sorted(batches)[LEARNING : INTERVALS - 1]:
        pairs = [(worker, np.unique(keys, return_counts=True)) for worker, keys in batches[number]]
        workers = np.concatenate([np.full(len(keys), worker) for worker, (keys, _) in pairs])
        keys = np.concatenate([keys for _, (keys, _) in pairs])
        loads = np.bincount(workers, np.concatenate([counts for _, (_, counts) in pairs]), WORKERS)
        distinct = len(np.unique(np.stack([workers, keys]), axis=1).T)
        measured.append(Placed(distinct / len(np.unique(keys)), float(loads.max() / loads.mean())))
    return Placed(*(float(mean) for mean in np.mean(measured, axis=0)))
