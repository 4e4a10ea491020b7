"""Rerun the papers' comparisons, draw the plots, and write the tables of ``docs/partitioning.md``.

    python -m millrace_research.papers [--from-recorded | --only EXPERIMENTS]

A run writes its figures into ``bench/recorded/papers.json``, from which all verdicts on the page are computed. With
``--only`` some experiments run again, separated by commas, and the others keep their recorded figures. With
``--from-recorded`` plots and tables are written from that file, without a run.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from millrace_research.docs_pages import replace_between
from millrace_research.papers import plots
from millrace_research.papers.cooperation import cooperation_table
from millrace_research.papers.figures import PaperFigures
from millrace_research.papers.rerun import CLAIMS, EXPERIMENTS, run
from millrace_research.papers.verdicts import table, verdict_text

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "partitioning.md"
RECORDED = ROOT / "bench" / "recorded" / "papers.json"
BEGIN, END = "<!-- claims: written by make bench NAME=papers -->", "<!-- end of claims -->"
COOPERATION = "<!-- cooperation: written by make bench NAME=papers -->", "<!-- end of cooperation -->"


def main() -> None:
    """Measure, or read the figures of the recorded run, and write the plots and the tables of the page."""
    parser = argparse.ArgumentParser(prog="python -m millrace_research.papers", description=__doc__)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--from-recorded", action="store_true", help="write only plots and tables, without a run")
    which.add_argument("--only", metavar="EXPERIMENTS", help=f"run only some of {', '.join(EXPERIMENTS)}")
    options = parser.parse_args()
    figures = PaperFigures.read(RECORDED) if options.from_recorded or options.only else PaperFigures()
    if not options.from_recorded:
        measured = PaperFigures()
        for found in run(options.only.split(",") if options.only else EXPERIMENTS):
            measured.update(found)
            figures.renew(measured)
            figures.write(RECORDED)
    plots.draw_all(figures, ROOT / "docs" / "img" / "partitioning")
    replace_between(PAGE, BEGIN, END, table(CLAIMS, figures))
    replace_between(PAGE, *COOPERATION, cooperation_table(figures))
    for claim in CLAIMS:
        print(f"{claim.name:7} {verdict_text(claim, figures)}")


if __name__ == "__main__":
    main()
