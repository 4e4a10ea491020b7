"""Folders of processes: those of a killed process are removed by the next one, and no others."""

import signal
import subprocess
import sys

import pytest

from millrace_jobs.disk import process_folder

PROGRAM = "import sys; from millrace_jobs.disk import process_folder; print(process_folder('p-'), flush=True); input()"


@pytest.fixture
def start(monkeypatch, tmp_path):
    """Starts a process with a folder; returns it and the name of the folder."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    processes = []

    def start_one():
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        processes.append(process)
        return process, process.stdout.readline().strip()

    yield start_one
    for process in processes:
        process.kill()
        process.wait()


def test_the_folder_of_a_killed_process_is_removed_by_the_next_one(start, tmp_path):
    killed, left = start()
    _, in_use = start()
    (tmp_path / "p-of-an-unknown-process").mkdir()
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    own, second = process_folder("p-"), process_folder("p-")
    folders = {str(folder) for folder in tmp_path.iterdir()}
    assert folders == {in_use, str(tmp_path / "p-of-an-unknown-process"), str(own), str(second)}
    assert left not in folders
