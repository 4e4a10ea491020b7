"""Engines for Python users, each in an environment of its own with the packages that its users install."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from bench.processes import MILLRACE, Command
from lab.parts.printed_report import PrintedReport
from lab.parts.python_packages import PythonPackages
from lab.ports import free_port

if TYPE_CHECKING:
    from bench.peers.engines import PeerTask

PYTHON, BYTEWAX, QUIX, PATHWAY = "python", "bytewax", "quix", "pathway"
PYTHON_ENGINES = (PYTHON, BYTEWAX, QUIX, PATHWAY)
"""Millrace with a Python aggregator, and its peers."""

_PROGRAMS = Path(__file__).parent / "python"
_QUERY, _AGGREGATOR = _PROGRAMS / "top_values.yaml", _PROGRAMS / "top_values.py"
_FILES = {
    PYTHON: (_QUERY, _AGGREGATOR),
    BYTEWAX: (_PROGRAMS / "bytewax_peer.py",),
    QUIX: (_PROGRAMS / "quix_peer.py",),
    PATHWAY: (_PROGRAMS / "pathway_peer.py",),
}
_REQUIREMENTS = _PROGRAMS / "requirements"


def made_environment(name: str) -> Path | None:
    """Make the environment of an engine, unless it is there, and return its folder of programs."""
    if name not in PYTHON_ENGINES or name == PYTHON:
        return None
    packages = PythonPackages(f"packages of {name}", f"peer-{name}", _REQUIREMENTS / f"{name}.txt")
    packages.make(PrintedReport(packages.name))
    return packages.find() / "bin"


def lines_of(name: str) -> int:
    """Return the lines that a user writes: without docstrings, comments and blank lines."""
    return sum(_lines(path) for path in _FILES[name])


def command(name: str, task: PeerTask, programs: Path | None) -> Command:
    """Return the command that runs an engine, on as many cores as the task has slots."""
    if programs is None:
        return _millrace(task)
    values = {"SERVERS": task.servers, "SOURCE": task.source, "SINK": task.sink, "NAME": task.name}
    values |= {
        "FOLDER": str(task.folder / "state"),
        "INTERVAL": str(task.interval / 1000 if name == QUIX else task.interval),
    }
    script = _SCRIPTS[name](task, programs)
    # the benchmark's own path would bring its packages
    return ["env", "-u", "PYTHONPATH", *(f"{key}={value}" for key, value in values.items()), "sh", "-c", script]


def _millrace(task: PeerTask) -> Command:
    values = {"SERVERS": task.servers, "SOURCE": task.source, "SINK": task.sink, "INTERVAL": str(task.interval)}
    file = task.folder / _QUERY.name
    text = Template(_QUERY.read_text(encoding="utf-8")).substitute(values, FOLDER=task.folder.as_uri())
    file.write_text(text, encoding="utf-8")
    shutil.copy(_AGGREGATOR, task.folder)
    return [MILLRACE, "run", file]


def _bytewax(task: PeerTask, programs: Path) -> str:
    """Return a script that runs a process for each slot, with snapshots of the state."""
    python, folder = programs / "python", task.folder / "state"
    addresses = ";".join(f"127.0.0.1:{free_port()}" for _ in range(task.slots))
    snapshots = max(1, task.interval // 1000)  # in whole seconds; results do not wait for them
    run = f"{python} -m bytewax.run bytewax_peer:flow -a '{addresses}' -r {folder} -s {snapshots} -b 0"
    prepare = f"mkdir -p {folder} && {python} -m bytewax.recovery {folder} {task.slots}"
    return f"cd {_PROGRAMS} && {prepare} && {_at_once(f'{run} -i {number}' for number in range(task.slots))}"


def _quix(task: PeerTask, programs: Path) -> str:
    """Return a script that runs a process for each slot, in one consumer group."""
    run = f"{programs}/python {_PROGRAMS}/quix_peer.py"
    return _at_once(f"FOLDER=$FOLDER/{number} {run}" for number in range(task.slots))


def _pathway(task: PeerTask, programs: Path) -> str:
    run = f"{programs}/python -m pathway spawn --processes {task.slots} --first-port {free_port()}"
    return f"{run} {programs}/python {_PROGRAMS}/pathway_peer.py"


_SCRIPTS: Mapping[str, Callable[[PeerTask, Path], str]] = {BYTEWAX: _bytewax, QUIX: _quix, PATHWAY: _pathway}


def _at_once(commands: Iterable[str]) -> str:
    return f"{{ {' & '.join(commands)} & wait; }}"


def _lines(path: Path) -> int:
    text = path.read_text(encoding="utf-8")
    skipped = _docstring_lines(text) if path.suffix == ".py" else set()
    lines = enumerate((line.strip() for line in text.splitlines()), 1)
    return sum(number not in skipped and bool(line) and not line.startswith("#") for number, line in lines)


def _docstring_lines(program: str) -> set[int]:
    texts = (
        node
        for node in ast.walk(ast.parse(program))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )
    return {number for text in texts for number in range(text.lineno, (text.end_lineno or text.lineno) + 1)}
