"""The command ``millrace`` as users run it: query files in a folder, commands, and their output and files."""

from __future__ import annotations

import atexit
import csv
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections import Counter
from collections.abc import Iterable
from functools import cache
from itertools import compress
from pathlib import Path
from threading import Condition, Thread
from typing import Any, NamedTuple

import yaml

from lab.processes import Mark, signal_all

MILLRACE = str(Path(sys.executable).with_name("millrace"))
PATIENCE = 480.0
"""Seconds that a command may take on a busy machine before a test gives up."""

_TESTS = Path(__file__).parents[1]
_CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_PLAIN = re.compile(r'(\S+?)=("(?:[^"\\]|\\.)*"|\S*)')


_PROGRESS = re.compile(r"(starting|started|batch|finished|drained|failed)=|note: ")
"""How the lines begin that a run prints to standard error about its progress."""


class Result(NamedTuple):
    """The output of a command: ``err`` is what it says of errors, ``out`` all else, with its progress at the end.

    With a pseudo-terminal, ``out`` is all of it, without colors.
    """

    status: int
    out: str
    err: str

    @classmethod
    def of_outputs(cls, status: int, out: str, err: str) -> Result:
        """Return the result of a command with these standard outputs."""
        progress, errors = split_progress(err)
        return cls(status, out + progress, errors)

    @property
    def summary(self) -> dict[str, str]:
        """The fields of the last line."""
        return fields(self.out.splitlines()[-1])

    def assert_failed(self, *said: str) -> None:
        """Check for status 1 and one line on standard error that contains all of these texts."""
        assert self.status == 1, self
        assert self.err.startswith("error: "), self.err
        assert self.err.count("\n") == 1, self.err
        assert "Traceback" not in self.out + self.err
        for text in said:
            assert text in self.err


def split_progress(err: str) -> tuple[str, str]:
    """Return the lines of standard error about progress, and the others."""
    lines = err.splitlines(keepends=True)
    found = [_PROGRESS.match(line) is not None for line in lines]
    progress, others = ("".join(compress(lines, chosen)) for chosen in (found, [not each for each in found]))
    return progress, others


def fields(line: str) -> dict[str, str]:
    """Return the fields of a line of the plain display."""
    return {name: json.loads(text) if text.startswith('"') else text for name, text in _PLAIN.findall(line)}


class Project:
    """A folder with a query file, its input ``in``, its results ``out`` and its checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.inbox = folder / "in"
        self.inbox.mkdir(parents=True, exist_ok=True)

    def query(self, sql: str = "", /, name: str = "query", **spec: Any) -> str:
        """Write a query over ``events (at, who, n)`` of the csv files in ``in``, and return its file.

        ``source`` changes fields of that source, or removes them with None; so do others for fields of the spec.
        """
        source = {
            "files": {"path": "in", "format": "csv"},
            "schema": "at TIMESTAMP, who STRING, n INT",
            "watermark": {"column": "at", "delay": "10s"},
        }
        document = {
            "apiVersion": "millrace.io/v1alpha1",
            "kind": "StreamQuery",
            "metadata": {"name": name},
            "spec": {
                "sources": {"events": {k: v for k, v in (source | spec.pop("source", {})).items() if v is not None}},
                "query": {"sql": sql},
                "sink": {"files": {"path": "out", "format": "csv"}},
                "emit": "OnUpdate",
                "batchInterval": "200ms",
                "parallelism": {"initial": 2, "max": 8},
                "checkpoint": {"uri": (self.folder / "checkpoint").as_uri()},
            }
            | spec,
        }
        document["spec"] = {field: value for field, value in document["spec"].items() if value is not None}
        file = self.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
        return file.name

    def give(self, name: str, text: str) -> None:
        """Put a file into ``in``."""
        self.write(f"in/{name}", text)

    def write(self, name: str, text: str) -> str:
        """Write a file in one step."""
        partial = self.folder / f".{Path(name).name}.new"
        partial.write_text(text, encoding="utf-8")
        partial.replace(self.folder / name)
        return name

    def results(self, folder: str = "out") -> Counter[tuple[str, ...]]:
        """Count the rows in the csv results."""
        found: Counter[tuple[str, ...]] = Counter()
        for file in (self.folder / folder).glob("batch-*.csv"):
            with file.open(encoding="utf-8", newline="") as lines:
                found.update(tuple(row) for row in list(csv.reader(lines))[1:])
        return found

    def calibrated(self, query: str) -> Any:
        """Return the report of ``millrace calibrate`` on a query, which leaves no process behind."""
        with self.start("calibrate", query, "--seconds", "20", "--rate", "500", "--format", "json") as command:
            result = command.finish()
            command.assert_gone()
        assert result.status == 0, result
        return json.loads(result.out.removesuffix("starting=query\n"))

    def millrace(self, *arguments: str) -> Result:
        """Run a command in a process that all tests share, so that the JVM is started once."""
        return _shared_process().run(self.folder, arguments)

    def outputs(self, *arguments: str) -> tuple[int, str, str]:
        """Run a command in that process; return its status, its standard output and its standard error."""
        return _shared_process().outputs(self.folder, arguments)

    def program(self, *program: str) -> int:
        """Run a Python program in a process of its own; return its status."""
        paths = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-m", *program]
        ended = subprocess.run(command, cwd=self.folder, env=paths, capture_output=True, timeout=PATIENCE, check=False)
        return ended.returncode

    def start(self, *arguments: str, terminal: bool = False) -> Running:
        """Start a command in a process of its own."""
        return Running([MILLRACE, *arguments], self.folder, terminal=terminal)


class Running:
    """A command in a session of its own, with a pseudo-terminal or with pipes."""

    def __init__(self, command: Iterable[str], folder: Path, *, terminal: bool) -> None:
        self._mark = Mark()
        environment = os.environ | self._mark.environment | {"TERM": "xterm-256color"}
        environment.pop("COLUMNS", None)
        self._text: dict[str, str] = {"out": "", "err": ""}
        self._changed = Condition()
        self._terminal = -1
        if terminal:
            self._terminal, theirs = pty.openpty()
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
            streams: tuple[Any, Any, Any] = (theirs, theirs, theirs)
        else:
            streams = (subprocess.DEVNULL, subprocess.PIPE, subprocess.PIPE)
        self.process = subprocess.Popen(
            list(command),
            cwd=folder,
            env=environment,
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
            start_new_session=True,
            preexec_fn=_take_terminal if terminal else None,
        )
        if terminal:
            os.close(theirs)
            readers = [("out", self._terminal)]
        else:
            assert self.process.stdout is not None
            assert self.process.stderr is not None
            readers = [("out", self.process.stdout.fileno()), ("err", self.process.stderr.fileno())]
        self._readers = [Thread(target=self._read, args=reader, daemon=True) for reader in readers]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        while signal_all(self.processes(), signal.SIGKILL):
            self.process.poll()
        self.process.wait()

    def wait_for(self, pattern: str, times: int = 1) -> str:
        """Wait until the pattern was printed ``times`` times, and return everything printed so far."""
        deadline = time.monotonic() + PATIENCE
        with self._changed:
            while len(re.findall(pattern, text := self._text["out"] + self._text["err"])) < times:
                assert self.process.poll() is None, f"it ended without {pattern!r}: {self._text}"
                assert self._changed.wait(min(deadline - time.monotonic(), 1.0)) or time.monotonic() < deadline, (
                    f"no {pattern!r} in {PATIENCE} s: {self._text}"
                )
            return text

    def press_ctrl_c(self) -> None:
        """Press Ctrl-C in the terminal, which sends SIGINT to its foreground processes."""
        os.write(self._terminal, b"\x03")

    def finish(self) -> Result:
        """Wait for the end of the command."""
        status = self.process.wait(PATIENCE)
        for reader in self._readers:
            reader.join(PATIENCE)
        return Result.of_outputs(status, _CONTROLS.sub("", self._text["out"]), self._text["err"])

    def processes(self) -> set[int]:
        """Return the ids of the command's processes and their descendants."""
        return self._mark.processes()

    def assert_gone(self) -> None:
        """Check that no process is left, or that the last ones and their descendants end by themselves."""
        deadline = time.monotonic() + PATIENCE
        while processes := self.processes():
            for process in processes:
                try:
                    handle = os.pidfd_open(process)
                except ProcessLookupError:
                    continue
                ended, _, _ = select.select([handle], [], [], max(0.0, deadline - time.monotonic()))
                os.close(handle)
                assert ended, f"process {process} goes on"

    def _read(self, stream: str, descriptor: int) -> None:
        while True:
            try:
                data = os.read(descriptor, 1 << 16)
            except OSError:  # of a pseudo-terminal whose last user has gone
                return
            if not data:
                return
            with self._changed:
                self._text[stream] += data.decode(errors="replace")
                self._changed.notify_all()


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class CommandProcess:
    """A process that runs one command after the other (``cli_commands.py``), started with the prefix ``before``."""

    def __init__(self, *before: str) -> None:
        paths = os.pathsep.join([str(_TESTS), os.environ.get("PYTHONPATH", "")])
        self._process = subprocess.Popen(
            [*before, sys.executable, "-m", "spark.cli_commands"],
            env=os.environ | {"PYTHONPATH": paths},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        atexit.register(self.close)

    @property
    def root(self) -> Path:
        """The file system as this process sees it."""
        return Path(f"/proc/{self._process.pid}/root")

    def close(self) -> None:
        """End the process and its JVM."""
        self._process.kill()
        self._process.wait()

    def run(self, folder: Path, arguments: tuple[str, ...]) -> Result:
        """Run a command in a folder."""
        return Result.of_outputs(*self.outputs(folder, arguments))

    def outputs(self, folder: Path, arguments: tuple[str, ...]) -> tuple[int, str, str]:
        """Run a command in a folder; return its status, its standard output and its standard error."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([str(folder), *arguments]), file=self._process.stdin, flush=True)
        status, out, err = json.loads(self._process.stdout.readline())
        return status, out, err


@cache
def _shared_process() -> CommandProcess:
    return CommandProcess()
