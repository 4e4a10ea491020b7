"""Rerun the papers' comparisons, draw the plots, and write the table of claims into ``docs/partitioning.md``.

    python -m bench.papers [--figures FILE]

``--figures`` writes only plots and table, from the figures of an earlier run.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.docs_pages import replace_between
from bench.papers import plots
from bench.papers.figures import PaperFigures, table
from bench.papers.rerun import CLAIMS, run

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "partitioning.md"
BEGIN, END = "<!-- claims: written by make bench-papers -->", "<!-- end of claims -->"


def main() -> None:
    """Measure, or read the figures of an earlier run, and write the plots and the table of the page."""
    parser = argparse.ArgumentParser(prog="python -m bench.papers", description=__doc__)
    parser.add_argument("--figures", type=Path, help="write only plots and table, from this file of an earlier run")
    chosen = parser.parse_args()
    if chosen.figures:
        figures = PaperFigures.read(chosen.figures)
    else:
        figures = run()
        figures.write(ROOT / "out" / "papers.json")
    plots.draw_all(figures, ROOT / "docs" / "img" / "partitioning")
    replace_between(PAGE, BEGIN, END, table(CLAIMS, figures))
    for claim in CLAIMS:
        outcome = claim.check(figures)
        print(f"{claim.name:7} {outcome.verdict:10} {outcome.ours}")


if __name__ == "__main__":
    main()
