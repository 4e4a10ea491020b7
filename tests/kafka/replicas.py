"""Replicas of a partitioner as processes, a driver that instructs them, and what they have written, checked exactly."""

from __future__ import annotations

import json
import re
import signal
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import yaml

from lab import topics
from lab.kafka import Broker
from lab.processes import Process
from lab.waiting import wait_until
from millrace_api.validation.loading import load_queries
from millrace_jobs.dedicated.control_topic import ControlWriter
from millrace_jobs.dedicated.coordinator import topics_of
from millrace_jobs.dedicated.instructions import PLAN, WORK, Instructions, Work, version_of
from millrace_jobs.dedicated.manifest import Manifest
from millrace_jobs.dedicated.topics import TopicAdmin
from millrace_jobs.kafka.cluster import Partition
from millrace_jobs.pipeline.projection import Projection
from millrace_jobs.plan.control import Pin
from millrace_jobs.sources.connector import open_source
from millrace_jobs.sources.kafka.offsets import Offsets
from millrace_jobs.sources.kafka.source import KafkaSource

SCHEMA = "id BIGINT, moment TIMESTAMP, key STRING, value BIGINT"
PACK = pa.schema([("k0", pa.string()), ("id", pa.int64())])
WHERE = "`value` > -50"
PROJECTION = Projection(WHERE, (("k0", "`key`"), ("id", "`id`")), PACK, 1)
EVERYTHING = 1 << 30
"""A limit of records that is none."""

_MILLRACE = str(Path(sys.executable).with_name("millrace"))
_INTERVAL = 0.5


def passes(record: Mapping[str, Any]) -> bool:
    """Return whether a record passes the filter ``WHERE``."""
    return bool(record["value"] > -50)


class Placement:
    """The driver's side of one query's replicas, the replicas, and their topics; a context manager that ends them.

    Args:
        broker: the broker.
        bootstrap: its address for the replicas, perhaps through a proxy.
        topic: the raw topic, of JSON records with ``SCHEMA``.
        folder: folder for the query's file and the logs.
        interval: the batch interval in seconds.
        source: further fields of the query's source.
    """

    def __init__(
        self,
        broker: Broker,
        topic: str,
        folder: Path,
        *,
        bootstrap: str = "",
        interval: float = _INTERVAL,
        **source: Any,
    ) -> None:
        self.broker, self.topic = broker, topic
        self.interval = interval
        self._folder = folder
        self._file = folder / "query.yaml"
        document = _document(bootstrap or broker.bootstrap, topic, interval, source)
        self._file.write_text(yaml.safe_dump(document), encoding="utf-8")
        (query,) = load_queries(self._file)
        self.topics = topics_of(query)
        opened = open_source("events", query.spec.sources["events"], folder, folder)
        assert isinstance(opened, KafkaSource)
        self.source = opened
        self._definition = query.spec.sources["events"]
        self.admin = TopicAdmin(self.topics, opened.connection)
        self.processes: dict[int, Process] = {}
        self.ended: list[Process] = []
        self._stack = ExitStack()
        self.work: Work | None = None
        self.instructions = Instructions("", Pin(0, "hash", 1, 1), 0, EVERYTHING)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in [*self.processes.values(), *self.ended]:
            process.kill()

    def begin(
        self,
        pin: Pin,
        *,
        ends: Offsets | None = None,
        name: str = "0123456789ab",
        projection: Projection = PROJECTION,
        time_column: str = "moment",
    ) -> None:
        """Begin a generation at the beginning of the raw topic, under a plan."""
        self.admin.prepare(pin.workers)
        self._writer = ControlWriter(self.topics, self.source.connection)
        self.work = Work(
            generation=name,
            source="events",
            projection=projection,
            time_column=time_column,
            interval=self.interval,
            version=version_of(self._definition, projection),
            starts={},
            ends=ends,
            first=self.admin.end(self.topics.manifests),
            routed=self.admin.routed_id(),
        )
        self._writer.write({WORK: self.work.to_bytes()})
        self.instruct(generation=name, pin=pin)

    def instruct(self, **changes: Any) -> None:
        """Change the instructions; a plan with more workers gets partitions for them first."""
        self.instructions = replace(self.instructions, **changes)
        self.admin.prepare(self.instructions.pin.workers)
        self._writer.write({PLAN: self.instructions.to_bytes()})

    def start(self, *indexes: int, environment: Mapping[str, str] | None = None) -> None:
        """Start replicas; one that runs by that index is left to itself."""
        for index in indexes:
            log = self._folder / f"replica-{index}.log"
            command = [_MILLRACE, "partitioner", self._file, "--index", str(index), "--metrics-port", "0"]
            if (former := self.processes.get(index)) is not None:
                self.ended.append(former)
            limits = {"OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1", **(environment or {})}
            self.processes[index] = Process(command, log, folder=self._folder, environment=limits)

    def kill(self, *indexes: int) -> None:
        """Kill replicas by SIGKILL."""
        for index in indexes:
            self.processes[index].kill()

    def terminate(self, index: int) -> int:
        """Send SIGTERM to a replica, and return its exit status. Raises TimeoutExpired if it takes too long."""
        process = self.processes.pop(index)
        self.ended.append(process)
        process.send(signal.SIGTERM)
        return process.wait(60.0)

    def is_ready(self, index: int) -> bool:
        """Whether a replica says that it works."""
        try:
            self._get(index, "readyz")
        except urllib.error.HTTPError:
            return False
        return True

    def metric(self, index: int, name: str) -> float:
        """Return a metric of a replica, of which ``name`` is what follows ``millrace_partitioner_``."""
        (value,) = re.findall(rf"^millrace_partitioner_{name}{{.*}} (\S+)$", self._get(index, "metrics"), re.MULTILINE)
        return float(value)

    def _get(self, index: int, path: str) -> str:
        (place,) = re.findall(r"metrics=(\S+)/metrics", self.processes[index].said)
        with urllib.request.urlopen(f"{place}/{path}", timeout=10) as answer:
            return str(answer.read().decode())

    def manifests(self) -> list[Manifest]:
        """Return the committed manifests, in order."""
        return [Manifest.of(each.value or b"") for each in topics.committed(self.broker, self.topics.manifests)]

    def wait_for(self, records: int) -> list[Manifest]:
        """Wait until this many raw records have been placed, and return the manifests."""

        def placed() -> list[Manifest]:
            assert all(process.status is None for process in self.processes.values()), self.report()
            found = self.manifests()
            return found if sum(each.read + each.rejected for each in found) >= records else []

        return wait_until(placed, lambda: f"{records} records placed: {self.report()}", 240.0)

    def wait_for_epoch(self, epoch: int, replicas: int) -> None:
        """Wait until this many replicas have placed records under a plan."""

        def all_follow() -> bool:
            followed = {each.replica for each in self.manifests() if each.pin.epoch == epoch and each.read}
            return followed >= set(range(replicas))  # one that is to end may follow before it does

        wait_until(all_follow, lambda: f"{replicas} replicas place by epoch {epoch}: {self.report()}", 240.0)

    def check(self, raw: Mapping[Partition, Mapping[int, Mapping[str, Any]]] | None = None) -> list[Manifest]:
        """Check everything in the topics against the raw topic, and return the manifests.

        Each manifest must have exactly the records between the raw offsets of the manifest before and its own, each
        once, and every pack must be in exactly one manifest. Manifests of one replica are in the order of its intervals.
        """
        raw = raw if raw is not None else raw_records(self.broker, self.topic)
        manifests = self.manifests()
        packs = {(each.partition, each.offset): each for each in topics.committed(self.broker, self.topics.routed)}
        at: dict[Partition, int] = dict.fromkeys(raw, 0)
        batches: Counter[int] = Counter()
        for manifest in manifests:
            assert manifest.batch > batches[manifest.replica], f"intervals out of order: {manifest}"
            batches[manifest.replica] = manifest.batch
            expected: list[int] = []
            read = 0
            for partition, offset in manifest.raw.items():
                assert offset >= at[partition], f"{partition} went back from {at[partition]}: {manifest}"
                covered = [raw[partition][place] for place in range(at[partition], offset) if place in raw[partition]]
                read += len(covered)
                expected += [record["id"] for record in covered if passes(record)]
                at[partition] = offset
            placed = [id_ for worker in manifest.packs for _, id_ in self._take(packs, manifest, worker)]
            assert sorted(placed) == sorted(expected), f"not what lies between its offsets: {manifest}"
            assert (manifest.read, manifest.routed) == (read, len(expected)), manifest
        assert not packs, f"{len(packs)} packs are in no manifest"
        return manifests

    def keys_of(self, manifest: Manifest) -> dict[str, set[int]]:
        """Return the workers that each key of a manifest was placed on."""
        packs = {(each.partition, each.offset): each for each in topics.committed(self.broker, self.topics.routed)}
        workers: dict[str, set[int]] = {}
        for worker in manifest.packs:
            for key, _ in self._take(packs, manifest, worker):
                workers.setdefault(key, set()).add(worker)
        return workers

    def _take(
        self, packs: dict[tuple[int, int], topics.Message], manifest: Manifest, worker: int
    ) -> list[tuple[str, int]]:
        """Take one worker's packs of a manifest out of those that are left, and return keys and ids in them."""
        assert worker < manifest.pin.workers, manifest
        found: list[tuple[str, int]] = []
        for begin, end in manifest.packs[worker]:
            for offset in range(begin, end):
                pack = packs.pop((worker, offset))
                assert pack.headers == {
                    "millrace-epoch": str(manifest.pin.epoch).encode(),
                    "millrace-batch": str(manifest.batch).encode(),
                    "millrace-generation": manifest.generation.encode(),
                }
                block = pa.ipc.read_record_batch(pa.py_buffer(pack.value or b""), PACK)
                found += zip(*block.to_pydict().values(), strict=True)
        return found

    def report(self) -> str:
        """Return the states and logs of the replicas, for a failed assertion."""
        return "\n".join(f"replica {i}, status {p.status}: {p.said[-1500:]}" for i, p in self.processes.items())


def record(number: int, key: str = "", value: int = 1) -> dict[str, Any]:
    """Return a raw record."""
    return {"id": number, "moment": "2024-03-01T00:00:00Z", "key": key or f"key {number % 50}", "value": value}


def raw_records(broker: Broker, topic: str) -> dict[Partition, dict[int, dict[str, Any]]]:
    """Return the committed records of a raw topic by partition and offset."""
    found: dict[Partition, dict[int, dict[str, Any]]] = {
        Partition(topic, n): {} for n in topics.partitions(broker, topic)
    }
    for each in topics.committed(broker, topic):
        found[Partition(topic, each.partition)][each.offset] = json.loads(each.value or b"")
    return found


def epochs(manifests: Sequence[Manifest]) -> list[int]:
    """Return the epochs of manifests, in order."""
    return [each.pin.epoch for each in manifests]


def _document(bootstrap: str, topic: str, interval: float, source: Mapping[str, Any]) -> dict[str, Any]:
    events = {"kafka": {"bootstrapServers": bootstrap, "topic": topic}, "schema": SCHEMA, **source}
    return {
        "apiVersion": "millrace.io/v1alpha1",
        "kind": "StreamQuery",
        "metadata": {"name": "placed"},
        "spec": {
            "sources": {"events": events},
            "query": {"sql": "SELECT key, count(*) AS records FROM events GROUP BY key"},
            "sink": {"console": {}},
            "batchInterval": f"{round(interval * 1000)}ms",
            "partitioner": {"placement": "Dedicated"},
        },
    }
