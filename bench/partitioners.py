"""Records per second of each partitioner on one core, and the memory that its state takes.

    python -m bench.partitioners [--partitioners pkg,am:cardinality=hll] [--streams "uniform,Zipf 1.5"]
        [--workers 8,64] [--records 4000000] [--repeats 5] [--state-keys 10000000] [--kafka SERVERS] [--json FILE]

Keys are integer codes, hashed before the clock starts. Time is the processor time of the routing thread on one core;
the best of several runs counts. For comparison, each algorithm's transcription in plain Python, the oracle of its
tests, runs too. With ``--kafka``, a consumer of a running broker shows at what rate records can arrive.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from bench.key_streams import KEYS, SKEWS, skewed
from bench.partitioner_speed import (
    BATCH,
    SpeedFigure,
    measure_speed,
)
from millrace_research.comparison.contenders import Contender, parse_contenders
from millrace_research.comparison.state_memory import BLOCK, StateFigure, can_measure_state, measure_state

PARTITIONS = 4
RECORD_BYTES = 100
AT_ONCE = 10_000
SECONDS_WITHOUT_RECORDS = 10

CONSUMER = {
    "group.id": "bench",
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "queued.min.messages": 100_000,
    # By default a full queue makes the client wait for a second before it fetches again.
    "fetch.queue.backoff.ms": 5,
}


@dataclass(frozen=True)
class KafkaFigure:
    """Throughput of one consumer in its best run, by wall clock."""

    records: int
    messages_per_second: float
    """Throughput as the client's message objects."""
    arrow_records_per_second: float
    """Throughput as Arrow arrays of keys and values, the least that a record batch needs."""


def measure_consumer(bootstrap_servers: str, records: int, repeats: int) -> KafkaFigure:
    """Fill a new topic on a running broker, read it ``repeats`` times in both ways, and delete it.

    Raises:
        ModuleNotFoundError: confluent-kafka is not installed. The message says what to install.
    """
    client = _client("confluent_kafka")
    admin = _client("confluent_kafka.admin")
    servers = {"bootstrap.servers": bootstrap_servers}
    topic = f"millrace-bench-{uuid.uuid4().hex[:12]}"
    administrator = admin.AdminClient(servers)
    created = administrator.create_topics([admin.NewTopic(topic, PARTITIONS, 1)])
    created[topic].result()
    try:
        _fill(client.Producer({**servers, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000}), topic, records)

        def best(take: Callable[[list[Any]], object]) -> float:
            return max(_rate(client, {**servers, **CONSUMER}, topic, records, take) for _ in range(repeats))

        return KafkaFigure(records, best(len), best(_columns))
    finally:
        administrator.delete_topics([topic])[topic].result()


def _client(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("--kafka needs the Kafka client; install it: pip install confluent-kafka") from error


def _fill(producer: Any, topic: str, records: int) -> None:
    """Write records of ``RECORD_BYTES``, key and value together, to all partitions in turn."""
    for number in range(records):
        key = number.to_bytes(8, "little")
        value = key.ljust(RECORD_BYTES - len(key), b"x")
        while True:
            try:
                producer.produce(topic, value, key, number % PARTITIONS)
                break
            except BufferError:  # the producer's queue is full
                producer.poll(0.1)
    producer.flush()


def _rate(
    client: Any, settings: dict[str, Any], topic: str, records: int, take: Callable[[list[Any]], object]
) -> float:
    """Return the records per second of one reader of the whole topic, from its first batch to its last."""
    consumer = client.Consumer(settings)
    try:
        consumer.assign([client.TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        first = read = len(_batch(consumer, records))
        began = time.perf_counter()
        while read < records:
            messages = _batch(consumer, records - read)
            take(messages)
            read += len(messages)
        return (read - first) / (time.perf_counter() - began)
    finally:
        consumer.close()


def _batch(consumer: Any, left: int) -> list[Any]:
    """Return the next messages, at most ``left``. Raise RuntimeError if the broker reports an error or sends none."""
    messages: list[Any] = consumer.consume(min(AT_ONCE, left), SECONDS_WITHOUT_RECORDS)
    if not messages:
        raise RuntimeError(f"the broker delivered no records for {SECONDS_WITHOUT_RECORDS} s: check that it is running")
    for message in messages:
        if message.error() is not None:
            raise RuntimeError(f"the broker reports: {message.error()}")
    return messages


def _columns(messages: list[Any]) -> pa.RecordBatch:
    keys = pa.array([message.key() for message in messages], pa.binary())
    values = pa.array([message.value() for message in messages], pa.binary())
    return pa.record_batch([keys, values], ["key", "value"])


AT_LEAST: Mapping[str, float | None] = {
    "shuffle": 50e6,
    "hash": 50e6,
    "pkg": 50e6,
    "pkg:choices=5": None,
    "cm": None,
    "cm:cardinality=hll": None,
    "am": 5e6,
    "am:choices=5": 5e6,
    "am:cardinality=hll": 10e6,
    "cam": 5e6,
    "cam:choices=5": 5e6,
    "cam:cardinality=hll": 10e6,
    "lm": 5e6,
    "lm:cardinality=hll": 10e6,
    "dchoices": None,
    "wchoices": None,
    "dagreedy": None,
    "dalton": 5e6,
    "dalton:statistics=exact": 5e6,
    "dalton:statistics=sketch": 5e6,
    "prompt": 5e6,
    "prompt:buffering=post-sort": 5e6,
}
"""Partitioners to measure, and the records per second that each has to reach; None is no target."""

STATE_WORKERS = 64


def show_speed(figures: Sequence[SpeedFigure], kafka: KafkaFigure | None, console: Console) -> None:
    """Print a table: million records per second on each stream, and the least ratios to Python and Kafka."""
    table = Table(
        title="million records/s on one core",
        caption=f"{KEYS:,} keys; in blocks of {BLOCK:,} and windows of {BATCH:,} records / as one block and window; "
        "ratios of the former on the stream where they are least",
    )
    table.add_column("partitioner")
    streams = dict.fromkeys(figure.stream for figure in figures)
    for column in ("n", *streams, "x plain Python", "x Kafka", "at least"):
        table.add_column(column, justify="right")
    for label, workers in dict.fromkeys((figure.partitioner, figure.workers) for figure in figures):
        row = [figure for figure in figures if (figure.partitioner, figure.workers) == (label, workers)]
        speeds = [f"{figure.in_blocks / 1e6:,.1f} / {figure.in_one_block / 1e6:,.1f}" for figure in row]
        python = min(figure.in_blocks / figure.plain_python for figure in row)
        slowest = min(figure.in_blocks for figure in row)
        delivered = f"{slowest / kafka.messages_per_second:,.1f}" if kafka else "-"
        table.add_row(label, str(workers), *speeds, f"{python:,.0f}", delivered, _verdict(label, row))
    console.print(table)


def _verdict(label: str, row: Sequence[SpeedFigure]) -> str:
    least = AT_LEAST.get(label)
    if least is None:
        return "-"
    reached = min(min(figure.in_blocks, figure.in_one_block) for figure in row)
    return f"{least / 1e6:,.0f} {'reached' if reached >= least else 'MISSED'}"


def show_state(figures: Sequence[StateFigure], console: Console) -> None:
    """Print a table: MiB in a window of distinct keys, and after it."""
    table = Table(title="MiB of state with distinct keys in one window, and after it has ended")
    table.add_column("partitioner")
    for column in ("n", "keys", "resident", "peak", "saved", "resident after", "saved after"):
        table.add_column(column, justify="right")
    for figure in figures:
        sizes = (figure.resident, figure.peak, figure.saved, figure.resident_after, figure.saved_after)
        table.add_row(
            figure.partitioner,
            str(figure.workers),
            f"{figure.keys:,}",
            *(f"{size / 2**20:,.1f}" for size in sizes),
        )
    console.print(table)


def show_kafka(figure: KafkaFigure, console: Console) -> None:
    """Print what the consumer delivered."""
    console.print(
        f"one Kafka consumer, {RECORD_BYTES}-byte records: {figure.messages_per_second:,.0f} records/s as messages, "
        f"{figure.arrow_records_per_second:,.0f} as Arrow arrays"
    )


def _stay_on_one_core() -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def _speeds(contenders: Sequence[Contender], options: argparse.Namespace) -> list[SpeedFigure]:
    figures = []
    for stream in options.streams.split(","):
        keys = skewed(stream, options.records)
        for contender in contenders:
            for workers in options.workers.split(","):
                figure = measure_speed(contender, int(workers), stream, keys, options.repeats)
                figures.append(figure)
                print(
                    f"{stream} {figure.partitioner} n={figure.workers}: {figure.in_blocks / 1e6:,.1f} / "
                    f"{figure.in_one_block / 1e6:,.1f} M records/s",
                    file=sys.stderr,
                )
    return figures


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitioners", default=",".join(AT_LEAST))
    parser.add_argument("--streams", default=",".join(SKEWS))
    parser.add_argument("--workers", default="8,64")
    parser.add_argument("--records", type=int, default=4_000_000, help="records in a stream")
    parser.add_argument("--repeats", type=int, default=5, help="runs of which the best counts")
    parser.add_argument(
        "--state-keys", type=int, default=10_000_000, help="keys of a window for measuring the state, on Linux; 0: none"
    )
    parser.add_argument("--kafka", metavar="SERVERS", help="bootstrap servers of a broker to read from")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    console = Console(width=160)
    # First, because the client has threads of its own, which need the other cores.
    kafka = measure_consumer(options.kafka, options.records, options.repeats) if options.kafka else None
    _stay_on_one_core()
    contenders = parse_contenders(options.partitioners, slides=1)
    speeds = _speeds(contenders, options)
    measured = contenders if options.state_keys and can_measure_state() else []
    states = [measure_state(contender, STATE_WORKERS, options.state_keys) for contender in measured]
    show_speed(speeds, kafka, console)
    if states:
        show_state(states, console)
    if kafka:
        show_kafka(kafka, console)
    if options.json:
        document = {
            "speed": [asdict(figure) for figure in speeds],
            "state": [asdict(figure) for figure in states],
            "kafka": asdict(kafka) if kafka else None,
        }
        options.json.write_text(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
