"""What authentication and encryption cost a driver and its executors: the same work with and without, in one run.

    python -m bench.wires [--rounds 5] [--rows 2000000] [--json FILE]

Each turn is a process of its own, with two executors of one core that read each other's shuffle files only over the
loopback interface, which is faster than any network: the share of encryption is as large as it gets. A turn first
counts 1,000 rows after a shuffle, which gives the time from the start of the process to the first result. It does so
again and again (a small batch), and then shuffles records of 128 random characters (a large batch). Ratios are those of
the turns of one round: encrypted to open.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.processor_time import own_seconds
from lab.exchanging_executors import WIRES, exchanging_session

Figures = dict[str, float]


def turn(wires: str, rows: int, began: float) -> Figures:
    """Return the figures of this process, which began at that time."""
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as name:
        spark = exchanging_session(Path(name), wires, {})
        small = spark.range(1_000, numPartitions=4).repartition(4, "id").selectExpr("count(*)")
        records = spark.range(rows, numPartitions=4).selectExpr("id", "sha2(string(id), 512) AS text")
        exchange = records.repartition(4, "id").write.format("noop").mode("overwrite").save
        small.collect()
        figures = {"s to the first result": time.monotonic() - began}
        for name, work, warm_up, times in (("small", small.collect, 40, 100), ("large", exchange, 1, 5)):
            for _ in range(warm_up):
                work()
            spent = own_seconds()
            figures[f"ms of a {name} batch"] = 1000 * statistics.median(_seconds(work) for _ in range(times))
            figures[f"ms of processor time of a {name} batch"] = 1000 * (own_seconds() - spent) / times
        figures["s of processor time of all"] = own_seconds()
        spark.stop()
        return figures


def rounds(number: int, rows: int) -> list[dict[str, Figures]]:
    """Return the figures of each round by what is on the wires; every second round is in the other order."""
    found = []
    for index in range(number):
        order = WIRES if index % 2 == 0 else WIRES[::-1]
        found.append({wires: _in_another_process(wires, rows) for wires in order})
        print(json.dumps(found[-1]), file=sys.stderr)
    return found


def show(found: list[dict[str, Figures]], console: Console) -> None:
    """Print each figure's median, and the median and range of its ratio."""
    table = Table()
    for column in ("", *WIRES, "ratio", "range"):
        table.add_column(column, justify="right" if column else "left")
    for name in found[0]["open"]:
        ratios = sorted(each["encrypted"][name] / each["open"][name] for each in found)
        medians = [f"{statistics.median(each[wires][name] for each in found):.2f}" for wires in WIRES]
        table.add_row(name, *medians, f"{statistics.median(ratios):.2f}", f"{ratios[0]:.2f} to {ratios[-1]:.2f}")
    console.print(table)


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=2_000_000, help="records of a large batch")
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--turn", nargs=2, metavar=("WIRES", "BEGAN"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.turn:
        print(json.dumps(turn(options.turn[0], options.rows, float(options.turn[1]))), flush=True)
        os._exit(0)
    found = rounds(options.rounds, options.rows)
    show(found, Console(width=120))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


def _in_another_process(wires: str, rows: int) -> Figures:
    began = time.monotonic()  # one clock for all processes of a machine
    command = [sys.executable, "-m", "bench.wires", "--rows", str(rows), "--turn", wires, str(began)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def _seconds(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


if __name__ == "__main__":
    main()
