"""Run all policies on all traces in two processes, plot some cases, and write tables into ``docs/autoscaling.md``.

    python -m bench.arena [--quick] [--json FILE] [--figures FILE]

``--figures`` writes only the tables, from the figures of an earlier run. ``--quick`` runs a few short cases and writes
nothing to the docs.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path

from bench.arena import page
from bench.arena.cases import ArenaCase, CaseResult, Faulted, cases, run
from millrace_research.arena.figures import RunFigures, Settling
from millrace_research.docs_pages import replace_between

ROOT = Path(__file__).parents[2]
PAGE, PICTURES = ROOT / "docs" / "autoscaling.md", ROOT / "docs" / "img"
BEGIN, END = "<!-- arena: written by make bench NAME=arena -->", "<!-- end of arena -->"
_PROCESSES = 2


def main() -> None:
    """Simulate all cases, or read the figures of an earlier run, and write the tables into the page."""
    parser = argparse.ArgumentParser(prog="python -m bench.arena", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only some short cases, nothing written to the docs")
    parser.add_argument("--json", type=Path, default=ROOT / "out" / "arena.json", help="file for all figures")
    parser.add_argument("--figures", type=Path, help="write only the tables, from this file of an earlier run")
    chosen = parser.parse_args()
    if chosen.figures:
        results = _read(chosen.figures)
    else:
        results = _simulated(cases(chosen.quick), chosen.json.parent if chosen.quick else PICTURES)
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        chosen.json.write_text(json.dumps([asdict(result) for result in results], indent=1))
    tables = page.text(results)
    print(tables)
    if not chosen.quick:
        replace_between(PAGE, BEGIN, END, tables)


def _simulated(to_run: list[ArenaCase], pictures: Path) -> list[CaseResult]:
    began = time.perf_counter()
    pictures.mkdir(parents=True, exist_ok=True)
    results = []
    with get_context("spawn").Pool(_PROCESSES) as pool:
        for result in pool.imap_unordered(run, [(case, pictures) for case in to_run]):
            results.append(result)
            elapsed = time.perf_counter() - began
            print(f"{elapsed:5.0f} s  {len(results)}/{len(to_run)}  {result.case}: {result.seconds:.0f} s", flush=True)
    return results


def _read(file: Path) -> list[CaseResult]:
    results = json.loads(file.read_text())
    for result in results:
        for found in result["figures"]:
            found["settling"] = tuple(Settling(**step) for step in found["settling"])
        result["figures"] = tuple(RunFigures(**found) for found in result["figures"])
        result["faults"] = tuple(Faulted(**found) for found in result["faults"])
    return [CaseResult(**result) for result in results]


if __name__ == "__main__":
    main()
