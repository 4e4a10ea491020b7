"""The table of cooperating partitioners beside independent ones, two choices and hashing, on real skewed streams."""

from __future__ import annotations

from collections.abc import Iterator

from millrace_research.papers.dalton_003_pace import NEVER
from millrace_research.papers.dalton_003_sources import EVEN_AND_SKEWED, REAL, TWO_SKEWED, parallelism_of
from millrace_research.papers.figures import REPLICAS, PaperFigures, short

_NAMES = {"Dalton": "`dalton`, cooperating", NEVER: "`dalton`, each alone", "PK-2": "`pkg`", "FLD": "`hash`"}
_FIGURES = ("imbalance", "replication", "pace")


def cooperation_table(figures: PaperFigures) -> str:
    """Return imbalance, Γ/‖S‖ and pace of each algorithm with 1, 2, 4 and 8 partitioners, as Markdown."""
    counts = [f"{label}: {REPLICAS[0]}" for label in ("imbalance", "Γ/‖S‖", "pace")]
    heads = ["stream", "", *(cell for first in counts for cell in (first, *map(str, REPLICAS[1:])))]
    rows = [heads, ["---", "---", *["--:"] * (len(heads) - 2)], *_rows(figures)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def _rows(figures: PaperFigures) -> Iterator[list[str]]:
    for stream in (*REAL, EVEN_AND_SKEWED, TWO_SKEWED):
        for name, label in _NAMES.items():
            cells = [
                figures.of("sources", stream, name, parallelism_of(stream), figure, replicas=m)
                for figure in _FIGURES
                for m in REPLICAS
            ]
            yield [stream, label, *map(short, cells)]
