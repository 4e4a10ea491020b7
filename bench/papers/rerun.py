"""A run of the experiments on all papers, one paper after the other."""

from __future__ import annotations

import time
from types import ModuleType

from bench.papers import cost_model_000, dalton_003, dalton_003_claims, pkg_001, prompt_004
from bench.papers.figures import PaperFigures

PAPERS: tuple[ModuleType, ...] = (cost_model_000, pkg_001, dalton_003, prompt_004)
CLAIMS = (*cost_model_000.CLAIMS, *pkg_001.CLAIMS, *dalton_003_claims.CLAIMS, *prompt_004.CLAIMS)


def run() -> PaperFigures:
    """Run all experiments and return their figures. This takes about ten minutes."""
    figures = PaperFigures()
    for paper in PAPERS:
        began = time.perf_counter()
        paper.run(figures)
        print(f"{paper.__name__}: {time.perf_counter() - began:.0f} s", flush=True)
    return figures
