"""Programs that benchmarks start as a user does, by a command in a process of its own, and the jars that they need."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lab.parts.commands import run
from lab.parts.maven_jars import MavenJars
from lab.parts.printed_report import PrintedReport

MILLRACE = Path(sys.executable).with_name("millrace")
"""The command line of Millrace."""

Command = Sequence[str | os.PathLike[str]]

_REPOSITORY = Path(__file__).parents[1]
_PATIENCE = 30.0


def exit_on_sigterm() -> None:
    """Have SIGTERM raise SystemExit in this process, so that what it has started is stopped, as on Ctrl-C."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def millrace(*arguments: str) -> str:
    """Run a command of Millrace to its end, and return what it prints to stdout.

    Raises:
        RuntimeError: it failed; the message has all that it printed.
    """
    done = subprocess.run([MILLRACE, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"millrace {' '.join(arguments)}: {done.stdout}{done.stderr}")
    return done.stdout


@contextmanager
def running(command: Command, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command for the length of the block, with what it prints added to ``log``, and stop it afterwards."""
    path = os.pathsep.join(filter(None, [str(_REPOSITORY), *sys.path]))
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, start_new_session=True, env=os.environ | {"PYTHONPATH": path}
        )
    try:
        yield process
    finally:
        _end(process)


def fetched_jars(name: str, slug: str, pom: Path) -> Path:
    """Fetch the jars that a pom lists, unless they are there, and return their folder."""
    jars = MavenJars(name, slug, pom)
    jars.make(PrintedReport(jars.name))
    return jars.find()


def compile_java(source: Path, jars: Path, folder: Path) -> None:
    """Compile a program against a folder of jars; its classes go to ``folder``."""
    run(["javac", "-nowarn", "-cp", f"{jars}/*", "-d", folder, source], seconds=120)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM, on which Millrace drains, and kill the whole process group if that takes too long."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
