"""A replica of a partitioner as a process of its own: ``python -m kafka.replica_process JSON``, ended by SIGTERM."""

from __future__ import annotations

import json
import signal
import sys
import threading

import pyarrow as pa

from millrace_jobs.dedicated.message_keys import MessageKeys
from millrace_jobs.dedicated.replica import PartitionerReplica, ReplicaSpec
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.pipeline.expressions.compiler import compile_projection
from millrace_jobs.pipeline.projection import ArrowProjection, Projection
from millrace_jobs.plan.control import Pin
from millrace_jobs.sources.formats.messages import TextDecoder

RECORDS = pa.schema([("user", pa.string()), ("n", pa.int64())])


def message_keys(where: str = "") -> MessageKeys:
    """Return what finds the user of a CSV message."""
    wanted = Projection(where, (("user", "user"),), pa.schema([("user", pa.string())]), 1)
    projection = compile_projection(wanted, RECORDS)
    assert isinstance(projection, ArrowProjection)
    return MessageKeys(TextDecoder("csv", RECORDS, "iso"), projection, 1)


def main(given: str) -> None:
    about = json.loads(given)
    spec = ReplicaSpec("q", Connection(about["servers"]), [about["raw"]], about["routed"], about["index"], 0.3)
    pin = Pin(about["epoch"], about["algorithm"], about["replicas"], about["workers"])
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())

    def wrote(batch: int, records: int, seconds: float) -> None:
        print(f"batch={batch} records={records} seconds={seconds:.3f}", flush=True)

    PartitionerReplica(spec, message_keys(about.get("where", "")), lambda: pin, wrote).run(stop)


if __name__ == "__main__":
    main(sys.argv[1])
