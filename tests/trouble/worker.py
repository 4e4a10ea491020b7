"""A process that runs cases one after the other with one JVM, and writes a line for each and for each finding."""

from __future__ import annotations

import os
import re
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

END = "end"
CASES = 100
"""Cases of one process."""
FILES = 30
"""Inputs that are read without Spark for each case with it."""

ZONES = ("UTC", "America/New_York", "Asia/Kathmandu", "Pacific/Apia", "Europe/Dublin")
"""Time zones of the machine, on which no result may depend."""

_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"
"""Java's options for many short queries, as in ``tests/conftest.py``."""


def main() -> None:
    """Run the cases that the arguments name."""
    seed, first, until, plans, without, shrink, out, known = sys.argv[1:]
    os.environ.setdefault("SPARK_SUBMIT_OPTS", _JAVA)
    os.environ["TZ"] = ZONES[int(first) // CASES % len(ZONES)]
    time.tzset()
    seen = set(known.split("\n"))
    for number in range(int(first), int(first) + CASES):
        if time.time() > float(until):
            break
        _files(f"{seed}/{number}", seen)
        _case(
            f"{seed}/{number}", number, plans.split(","), frozenset(without.split(",")), float(shrink), Path(out), seen
        )
    print(END, flush=True)
    os._exit(0)  # the JVM ends with this process


def _case(
    name: str, number: int, plans: Sequence[str], without: frozenset[str], shrink: float, out: Path, seen: set[str]
) -> None:
    from .findings import keep, scratch, shrunk
    from .judging import judge
    from .shapes import draw_case

    case = draw_case(name, without)
    _say("case", number, case.shape)
    plans = case.plans(plans)
    with scratch() as folder:
        try:
            findings = judge(case, folder, plans)
        except Exception:
            _say("finding", f"the generator failed: {traceback.format_exc().splitlines()[-1]}")
            print(f"  {name}: {traceback.format_exc()}")
            return
    new = [finding for finding in findings if finding.signature not in seen]
    for finding in findings:
        _say("finding", finding.signature)
        seen.add(finding.signature)
    for finding in new:
        print(f"  {name} {finding.kind} ({finding.plan}): {finding.details[:400]}", flush=True)
    if new:  # the others often have the same cause
        first = new[0]
        small, last = shrunk(case, first, first.plan.split(",")[0], shrink)
        place = out / re.sub(r"\W+", "-", f"{name}-{first.kind}")
        keep(small, [last, *new], place)
        print(f"  kept in {place}: {small.rows} rows: {small.query.question().spark}", flush=True)


def _files(name: str, seen: set[str]) -> None:
    """Read inputs without Spark."""
    from .findings import scratch
    from .reading import difference, draw_files

    for number in range(FILES):
        files = draw_files(f"{name}/{number}")
        with scratch() as folder:
            found = difference(files, folder)
        if found is None:
            continue
        what, example = found
        _say("finding", what)
        if what not in seen:
            seen.add(what)
            print(f"  files {files.name} {files.spelling}: {example}", flush=True)


def _say(*words: object) -> None:
    print(*words, sep="\t", flush=True)


if __name__ == "__main__":
    main()
