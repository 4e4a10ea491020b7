"""The processor time of a running query by what uses it: each process, and within Spark's JVM each kind of thread."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_GONE = (FileNotFoundError, ProcessLookupError)

DRIVER, ZYGOTE, SOURCES, TASKS, CLIENTS = "driver's Python", "zygote", "sources", "Python tasks", "other processes"
JVM = "JVM: "
UNSEEN = "processes that ended unseen"
THREADS = (
    (r"C1 CompilerThre", "C1 compiler"),
    (r"C2 CompilerThre", "C2 compiler"),
    (r"GC Thread|ParGC|G1 |VM Thread", "garbage collection and VM"),
    (r"stream executio", "stream"),
    (r"Executor task", "tasks"),
    (r"java|main", "main thread"),
    (r"Thread-\d+", "calls from Python"),
)
"""Kinds of threads of the JVM, by the beginning of their names, of which Linux keeps 15 characters."""

OTHERS, ENDED, CHILDREN = "other threads", "threads that ended", "processes that it ran"


@dataclass(frozen=True)
class ProcessTimes:
    """A process as ``/proc`` has it; ``seconds`` is its own time, ``ended`` that of children that it waited for."""

    parent: int
    command: str
    seconds: float
    ended: float
    threads: Mapping[str, float]


def usage(root: int) -> dict[str, float]:
    """Return the seconds of processor time so far of the query whose command is the process ``root``, by part."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(*_GONE):
            found[int(folder.name)] = _times(folder)
    return by_part(found, root)


def by_part(processes: Mapping[int, ProcessTimes], root: int) -> dict[str, float]:
    """Return the seconds of processor time of a query by part, from all processes of the machine."""
    parts: defaultdict[str, float] = defaultdict(float)
    for process, times in processes.items():
        lineage = _lineage(processes, process)
        if root not in lineage:
            continue
        part = _part(times, [processes[each].command for each in lineage[: lineage.index(root)]])
        if part == JVM:
            for kind, seconds in _by_kind(times).items():
                parts[JVM + kind] += seconds
        else:
            parts[part] += times.seconds
            parts[SOURCES if part == ZYGOTE else part] += times.ended
    return dict(parts)


def _part(times: ProcessTimes, commands: Sequence[str]) -> str:
    """Return the part of a process, given the commands from itself up to the child of the query's command."""
    if not commands:
        return DRIVER
    if any("zygote_server" in command for command in commands):
        return _part_of_fork(times, len(commands))
    return JVM if times.threads else CLIENTS


def _part_of_fork(times: ProcessTimes, depth: int) -> str:
    """Return the part of the zygote (1), of what is forked from it (2), and of the workers of a daemon (3)."""
    if depth == 1:
        return ZYGOTE
    return TASKS if depth > 2 or times.command.startswith("daemon ") else SOURCES


def _by_kind(times: ProcessTimes) -> dict[str, float]:
    kinds: defaultdict[str, float] = defaultdict(float)
    for name, seconds in times.threads.items():
        kind = next((kind for pattern, kind in THREADS if re.match(pattern, name)), OTHERS)
        kinds[kind] += seconds
    kinds[ENDED] = max(times.seconds - sum(times.threads.values()), 0.0)
    kinds[CHILDREN] = times.ended
    return dict(kinds)


def _lineage(processes: Mapping[int, ProcessTimes], process: int) -> list[int]:
    """Return a process, its parent, the parent's parent, ..."""
    found: list[int] = []
    while process in processes and process not in found:
        found.append(process)
        process = processes[process].parent
    return found


def _times(folder: Path) -> ProcessTimes:
    fields = _stat(folder)
    own, ended = (sum(map(int, fields[first : first + 2])) / _TICKS for first in (11, 13))
    name = (folder / "comm").read_text(errors="replace").strip()
    command = f"{name} {(folder / 'cmdline').read_bytes().replace(bytes(1), b' ').decode(errors='replace')}"
    threads: defaultdict[str, float] = defaultdict(float)
    if name == "java" and "SparkSubmit" in command:
        for thread in (folder / "task").iterdir():
            with suppress(*_GONE):
                seconds = sum(map(int, _stat(thread)[11:13])) / _TICKS
                threads[(thread / "comm").read_text(errors="replace").strip()] += seconds
    return ProcessTimes(int(fields[1]), command, own, ended, threads)


def _stat(folder: Path) -> list[str]:
    """Return the fields of ``stat`` from the third on: the state, the parent, ..."""
    return (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
