"""A run of the experiments on all papers, two at a time, and the claims that are checked against its figures."""

from __future__ import annotations

import importlib
import multiprocessing
import time
from collections.abc import Iterator, Sequence
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
    "cost_model_000_streams",
    "prompt_004",
    "pkg_001_streams",
    "dalton_003_learning",
    "dalton_003_batches",
    "dalton_003_clusters",
    "dalton_003_overhead",
    "prompt_004_overhead",
    "cost_model_000_overhead",
    "prompt_004_elasticity",
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


def run(experiments: Sequence[str] = EXPERIMENTS) -> Iterator[PaperFigures]:
    """Run experiments two at a time, and yield the figures of each in turn. Raise ValueError for an unknown one."""
    if unknown := [name for name in experiments if name not in EXPERIMENTS]:
        raise ValueError(f"there is no experiment {', '.join(unknown)}; write some of: {', '.join(EXPERIMENTS)}")
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as executor:
        yield from executor.map(_run_one, experiments)


def _run_one(name: str) -> PaperFigures:
    began = time.perf_counter()
    figures = PaperFigures()
    importlib.import_module(f"millrace_research.papers.{name}").run(figures)
    print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)
    return figures
