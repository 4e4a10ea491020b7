"""What the loss of an executor costs a query on a real cluster: with notice, as of a spot node, and without one.

    python -m bench.cluster.preemption [--rounds 3] [--json FILE]

A query counts 100 records a second on two executors, in batches of two seconds. In each round, one executor's pod is
deleted, so that it has its grace to hand on what it has, and one executor is killed; between them, nothing happens to
it for as long. What is measured is the time until all records are counted that had been written by then, and until two
executors are at work again. In the end each record has to be counted once.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

from bench.cluster.delays import report, running_lab, until_next
from lab.counting_query import Counting
from lab.installation import make_namespace
from lab.parts.millrace_images import ROOT

_EXECUTORS = 2
_REST = 15.0
"""Seconds from one measurement to the next."""

NOTHING, NOTICE, KILL = "nothing", "executor's pod deleted", "executor killed"
_RESULT = "to the next result"


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, default=ROOT / "out" / "cluster-preemption.json", help="file for figures")
    options = parser.parse_args()
    seconds: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as folder, running_lab(Path(folder)) as lab:
        make_namespace(lab.cluster, "preemption")
        counting = Counting(lab, "preemption")
        try:
            counting.start(executors={"initial": _EXECUTORS, "max": _EXECUTORS})
            counting.wait_for_executors(_EXECUTORS)
            for _ in range(options.rounds):
                for what, act in ((NOTHING, _nothing), (NOTICE, _delete), (KILL, _kill)):
                    _measure(counting, what, act, seconds)
            runs = counting.query.runs
        finally:
            counting.stop()
        counting.check()
    report(seconds, options.json)
    print(f"lost with notice: {_lost(seconds, NOTICE)}, without: {_lost(seconds, KILL)}; runs of the driver: {runs}")
    print(f"each of {counting.written.total():,} records is counted once")


def _lost(seconds: Mapping[str, Sequence[float]], what: str) -> str:
    """Return the median and the range of what rounds with a loss took longer than without one."""
    took, rest = (seconds[f"{each}, {_RESULT}"] for each in (what, NOTHING))
    lost = [longer - usual for longer, usual in zip(took, rest, strict=True)]
    return f"{median(lost):.1f} s ({min(lost):.1f} to {max(lost):.1f})"


def _measure(
    counting: Counting, what: str, act: Callable[[Counting, str], None], seconds: dict[str, list[float]]
) -> None:
    time.sleep(_REST)
    victim = min(each["metadata"]["name"] for each in counting.query.executors)
    began = time.monotonic()
    took = {_RESULT: until_next(counting, lambda: act(counting, victim))}
    if act is not _nothing:
        counting.wait_for_executors(_EXECUTORS, without=victim)  # which runs on in its grace
        took["to two executors at work"] = time.monotonic() - began
    for part, each in took.items():
        print(f"{what}, {part}: {each:.1f} s", flush=True)
        seconds.setdefault(f"{what}, {part}", []).append(each)


def _nothing(counting: Counting, victim: str) -> None:
    """Leave the executor alone, for the time that a record takes anyway."""


def _delete(counting: Counting, victim: str) -> None:
    """Ask an executor to end, as an eviction, a drained node or the notice of a spot node does."""
    counting.query.kubectl("delete", "pod", victim, "--wait=false")


def _kill(counting: Counting, victim: str) -> None:
    """Kill an executor's JVM, as the end of a spot node without a notice does."""
    counting.query.kubectl("exec", victim, "--", "sh", "-c", "kill -9 $(cat /proc/1/task/1/children)")


if __name__ == "__main__":
    main()
