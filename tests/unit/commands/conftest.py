"""The command line, in the process of a test."""

import sys

import pytest

from millrace_jobs.cli import main
from spark.cli import Result


@pytest.fixture
def millrace(tmp_path, monkeypatch, capfd):
    """Runs a command in this process, in a folder of its own, where KUBECONFIG names no file that is there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", "kubeconfig")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["millrace", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        return Result(end.value.code, *capfd.readouterr())

    return run
