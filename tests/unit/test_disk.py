"""Folders of processes: those of a killed process are removed by the next one, and no others."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lab.waiting import wait_until
from millrace_jobs.disk import process_folder

PROGRAM = """
import subprocess, sys
from millrace_jobs.disk import process_folder
folder, lock = process_folder("p-")
child = subprocess.Popen(["sleep", "600"], pass_fds=[lock]) if "with-child" in sys.argv else None
print(folder, child and child.pid, flush=True)
input()
"""


@pytest.fixture
def start(monkeypatch, tmp_path):
    """Starts a process with a folder; returns it, the name of the folder, and the id of a child that holds its lock."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    processes = []

    def start_one(*arguments):
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        processes.append(process)
        return process, *process.stdout.readline().split()

    yield start_one
    for process in processes:
        process.kill()
        process.wait()


def test_the_folder_of_a_killed_process_is_removed_by_the_next_one(start, tmp_path):
    killed, left, _ = start()
    _, in_use, _ = start()
    (tmp_path / "p-of-an-unknown-process").mkdir()
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    (own, _), (second, _) = process_folder("p-"), process_folder("p-")
    folders = {str(folder) for folder in tmp_path.iterdir()}
    assert folders == {in_use, str(tmp_path / "p-of-an-unknown-process"), str(own), str(second)}
    assert left not in folders


def test_the_folder_of_a_killed_process_stays_while_its_child_uses_it(start):
    killed, left, child = start("with-child")
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    process_folder("p-")
    assert Path(left).is_dir()
    os.kill(int(child), signal.SIGKILL)
    wait_until(lambda: process_folder("p-") and not Path(left).exists(), "the folder is removed")
