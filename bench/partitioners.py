"""Records per second of each partitioner on one core, and the memory that its state takes.

    python -m bench.partitioners [--partitioners pkg,am:cardinality=hll] [--streams "uniform,Zipf 1.5"]
        [--workers 8,64] [--records 4000000] [--repeats 5] [--state-keys 10000000] [--kafka SERVERS] [--json FILE]

Keys are integer codes, hashed before the clock starts. Time is the processor time of the routing thread on one core;
the best of several runs counts. For comparison, each algorithm's transcription in plain Python, the oracle of its
tests, runs too. With ``--kafka``, a consumer of a running broker shows at what rate records can arrive.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.kafka_consumer import RECORD_BYTES, KafkaFigure, measure_consumer
from bench.key_streams import KEYS, SKEWS, skewed
from bench.partitioner_speed import BATCH, BLOCK, SpeedFigure, measure_speed
from bench.partitioner_state import StateFigure, can_measure_state, measure_state
from millrace_jobs.benchmark.contenders import Contender, parse_contenders

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
        "--state-keys", type=int, default=10_000_000, help="keys of a window for the state, which Linux tells; 0: none"
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
