"""A run of the experiments on all papers, two at a time, and the claims that are checked against its figures."""

from __future__ import annotations

import importlib
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor

from millrace_research.papers import (
    algorithms_000_claims,
    cost_model_000_claims,
    dalton_003_claims,
    dalton_003_partitioner_claims,
    pkg_001_claims,
    prompt_004_claims,
)
from millrace_research.papers.figures import PaperFigures
from millrace_research.papers.verdicts import Claim

EXPERIMENTS = (
    "dalton_003",
    "cost_model_000",
    "dalton_003_sources",
    "pkg_001",
    "dalton_003_batches",
    "dalton_003_clusters",
    "dalton_003_overhead",
    "prompt_004_overhead",
    "prompt_004_elasticity",
    "prompt_004",
    "dalton_003_sync",
)
"""Modules with experiments, the longest first."""

_CLAIMS: tuple[Claim, ...] = (
    *cost_model_000_claims.CLAIMS,
    *algorithms_000_claims.CLAIMS,
    *pkg_001_claims.CLAIMS,
    *dalton_003_claims.CLAIMS,
    *dalton_003_partitioner_claims.CLAIMS,
    *prompt_004_claims.CLAIMS,
)
CLAIMS = tuple(sorted(_CLAIMS, key=lambda claim: tuple(map(int, claim.name.split(".")))))
"""All claims, by paper and number."""


def run() -> PaperFigures:
    """Run all experiments on two cores and return their figures."""
    figures = PaperFigures()
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as executor:
        for found in executor.map(_run_one, EXPERIMENTS):
            figures.update(found)
    return figures


def _run_one(name: str) -> PaperFigures:
    began = time.perf_counter()
    figures = PaperFigures()
    importlib.import_module(f"millrace_research.papers.{name}").run(figures)
    print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)
    return figures
