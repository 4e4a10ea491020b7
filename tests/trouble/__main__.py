"""``python -m trouble --minutes 240``: draw and run cases for a while, and keep each new finding under ``out/trouble``.

Cases run in a process of their own, a hundred per process, so that a crash or a hang is a finding, too, and the next
case runs.
"""

from __future__ import annotations

import argparse
import os
import queue
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

from lab.kafka import running_broker

from .cases import PLANS
from .messages import BROKER
from .worker import CASES, END

PATIENCE = 900.0
"""Seconds without a line of a worker after which it hangs."""


def main() -> None:
    """Run cases until the time is over, and report what was found."""
    parser = argparse.ArgumentParser(prog="trouble", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", default=str(int(time.time())))
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--plans", default=",".join(PLANS))
    parser.add_argument(
        "--without",
        default="",
        help="what to leave out, by comma: shapes, formats, eras, types, late, replay, kafka, outputs, dedicated",
    )
    parser.add_argument("--shrink", type=float, default=120.0, help="seconds to make a finding small")
    parser.add_argument("--out", type=Path, default=Path("out/trouble"))
    options = parser.parse_args()
    until = time.time() + 60 * options.minutes
    number, ran, found = options.first, Counter[str](), Counter[str]()
    with broker("kafka" in options.without.split(",")):
        while time.time() < until:
            last = _work(options, number, until, ran, found)
            number = last + 1 if last is not None else number + CASES
    print(f"cases: {sum(ran.values())}", *(f"{count:6d} {shape}" for shape, count in ran.most_common()), sep="\n")
    print(f"findings: {len(found)}", *(f"{count:6d} {what}" for what, count in found.most_common()), sep="\n")


@contextmanager
def broker(is_left_out: bool) -> Iterator[None]:
    """Run the broker of the cases, unless they need none."""
    if is_left_out:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="trouble-broker-") as folder, running_broker(Path(folder)) as running:
        os.environ[BROKER] = running.bootstrap
        yield


def _work(options: argparse.Namespace, first: int, until: float, ran: Counter[str], found: Counter[str]) -> int | None:
    """Run a worker to its end, and count what it reports; return the case in which it died or hung, if it did."""
    command = [sys.executable, "-m", "trouble.worker", options.seed, str(first), str(until), options.plans]
    command += [options.without, str(options.shrink), str(options.out), "\n".join(found)]
    # a case may have a folder of its own as its working directory
    tests = Path(__file__).resolve().parents[1]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (tests.parent, tests)))}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environment
    )
    lines: queue.Queue[str | None] = queue.Queue()
    Thread(target=_read, args=(process, lines), daemon=True).start()
    running = first
    while True:
        try:
            line = lines.get(timeout=PATIENCE)
        except queue.Empty:
            process.kill()
            found[f"case {options.seed}/{running} hangs"] += 1
            return running
        if line is None:
            break
        print(line, end="", flush=True)
        word, _, rest = line.rstrip("\n").partition("\t")
        if word == "case":
            running = int(rest.partition("\t")[0])
            ran[rest.partition("\t")[2]] += 1
        elif word == "finding":
            found[rest] += 1
        elif word == END:
            process.wait()
            return None
    found[f"case {options.seed}/{running} ends its process with status {process.wait()}"] += 1
    return running


def _read(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line)
    lines.put(None)


if __name__ == "__main__":
    main()
