"""Programs forked from a process that has imported Millrace, kopf and Kubernetes' client once.

A cold start takes one to two seconds of a core, mostly for imports; a fork takes a twentieth of a second. The program is
still a process with its own id, session, environment and output.
"""

from __future__ import annotations

import atexit
import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from kubernetes.config import kube_config

from .processes import Process, end_with_parent

MILLRACE = "millrace_jobs.cli:main"
"""The entry point of the command ``millrace``."""

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["millrace_jobs.cli", "millrace_operator.main", "millrace_operator.commands"])


class Forked(Process):
    """A Python program in a forked process that starts no other processes.

    Args:
        arguments: arguments of the program.
        log: file for standard output, and for standard error unless ``errors`` is given.
        entry: function to call, as ``module:name``; the module is imported in the new process.
        errors: file for standard error.
        folder: working directory.
        environment: variables that differ from the test's; None removes one.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        log: Path,
        *,
        entry: str = MILLRACE,
        errors: Path | None = None,
        folder: Path | None = None,
        environment: Mapping[str, str | None] | None = None,
    ) -> None:
        self.log = log
        for file in (log, errors or log):
            file.touch()
        changed = {**os.environ, **(environment or {})}
        variables = {name: value for name, value in changed.items() if value is not None}
        files = [str(log.absolute()), str((errors or log).absolute())]
        child = _CONTEXT.Process(target=_run, args=(entry, list(arguments), files, folder, variables))
        self._process = _Child(child)  # type: ignore[assignment]  # it has of a Popen what a Process uses

    def members(self) -> set[int]:
        """Return the process's id while it is alive."""
        return {self.pid} if self.status is None else set()


def run_forked(
    *arguments: str, environment: Mapping[str, str | None] | None = None, patience: float, entry: str = MILLRACE
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, and raise ``subprocess.TimeoutExpired`` after ``patience`` seconds."""
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        process = Forked(arguments, out, entry=entry, errors=err, environment=environment)
        try:
            status = process.wait(patience)
        finally:
            process.kill()
        return subprocess.CompletedProcess(arguments, status, out.read_text("utf-8"), err.read_text("utf-8"))


class _Child:
    """A ``multiprocessing`` process with the methods of ``subprocess.Popen`` that ``Process`` uses."""

    def __init__(self, process: multiprocessing.process.BaseProcess) -> None:
        self._process = process
        process.start()
        assert process.pid is not None
        self.pid = process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, patience: float | None = None) -> int:
        self._process.join(patience)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(self._process.name, patience or 0.0)
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def _run(entry: str, arguments: list[str], files: list[str], folder: Path | None, environment: dict[str, str]) -> None:
    """Run the program with its own session, output, environment and arguments."""
    end_with_parent()
    os.setsid()
    for descriptor, file in enumerate(files, 1):
        opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.environ.clear()
    os.environ.update(environment)
    kube_config.KUBE_CONFIG_DEFAULT_LOCATION = environment.get("KUBECONFIG", "~/.kube/config")  # read when imported
    if folder is not None:
        os.chdir(folder)
    module, _, name = entry.partition(":")
    sys.argv = [module, *arguments]
    try:
        getattr(importlib.import_module(module), name)()
    finally:
        atexit._run_exitfuncs()  # multiprocessing ends its processes without
