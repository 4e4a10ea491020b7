"""Processor time of single processes, of this process with its descendants, and of the whole machine, on Linux."""

from __future__ import annotations

import os
from collections.abc import Collection

from millrace_jobs.process import processors as own_processors
from millrace_jobs.process.processors import TICKS, all_stats, machine_seconds, stat_of, tree_in, tree_seconds

__all__ = ["bind", "machine_seconds", "own_seconds", "seconds_of", "tree", "tree_seconds"]


def seconds_of(process: int) -> float:
    """Return the processor time of all threads of a process so far, in seconds, without its children."""
    return sum(int(ticks) for ticks in stat_of(process)[11:13]) / TICKS


def own_seconds(without: Collection[int] = ()) -> float:
    """Return the processor time so far of this process and its descendants, as ``tree_seconds`` does."""
    return tree_seconds(os.getpid(), without)


def tree(root: int) -> set[int]:
    """Return the process ``root`` and its descendants."""
    return tree_in(all_stats(), root)


def bind(processors: int) -> None:
    """Restrict this process and its present and future descendants to the first ``processors`` processors."""
    own_processors.bind(range(processors))
