"""``python -m trouble --minutes 240``: draw and run cases for a while, and keep each new finding under ``out/trouble``."""

from __future__ import annotations

import argparse
import re
import time
from collections import Counter
from pathlib import Path

from .cases import PLANS
from .findings import keep, scratch, shrunk
from .judging import judge
from .shapes import draw_case


def main() -> None:
    """Run cases until the time is over."""
    parser = argparse.ArgumentParser(prog="trouble", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", default=str(int(time.time())))
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--cases", type=int, default=10**9, help="at most so many cases")
    parser.add_argument("--plans", default=",".join(PLANS))
    parser.add_argument("--without", default="", help="shapes, formats, eras and types to leave out")
    parser.add_argument("--shrink", type=float, default=60.0, help="seconds to make a finding small")
    parser.add_argument("--out", type=Path, default=Path("out/trouble"))
    options = parser.parse_args()
    plans = options.plans.split(",")
    until = time.monotonic() + 60 * options.minutes
    seen: Counter[str] = Counter()
    ran: Counter[str] = Counter()
    number = options.first
    while time.monotonic() < until and number < options.first + options.cases:
        name = f"{options.seed}/{number}"
        number += 1
        began = time.monotonic()
        case = draw_case(name, frozenset(filter(None, options.without.split(","))))
        with scratch() as folder:
            try:
                findings = judge(case, folder, case.plans(plans))
            except Exception as error:
                print(f"{name} {case.shape}: the generator failed: {type(error).__name__}: {error}", flush=True)
                ran["generator failed"] += 1
                continue
        ran[case.shape] += 1
        new = [finding for finding in findings if not seen[finding.signature]]
        seen.update(finding.signature for finding in findings)
        print(f"{name} {case.shape} {case.emit} {case.rows} rows {time.monotonic() - began:.1f} s", flush=True)
        for finding in findings:
            text = f"{finding.details[:300]}" if finding in new else finding.signature
            print(f"  {finding.kind} ({finding.plan}): {text}", flush=True)
        for finding in new[:1]:
            small, found = shrunk(case, finding, finding.plan.split(",")[0], options.shrink)
            place = options.out / re.sub(r"\W+", "-", f"{name}-{finding.kind}")
            keep(small, [found, *findings], place, case.plans(plans))
            print(f"  kept in {place}: {small.rows} rows, {small.query.question().spark}", flush=True)
    print(f"cases {sum(ran.values())}: {dict(ran)}")
    for signature, times in seen.most_common():
        print(f"{times:5d} {signature}")


if __name__ == "__main__":
    main()
