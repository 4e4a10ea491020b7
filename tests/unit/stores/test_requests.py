"""Counters of requests of object stores: those of all processes of a job, also of ended ones."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from millrace_jobs.stores.requests import FOLDER, StoreCounters, count, counting_in, environment, pages

CHILD = "from millrace_jobs.stores.requests import count; count('GET', 2, read=7); count('LIST')"


def test_processes_that_have_ended_count_too(tmp_path):
    with counting_in(tmp_path / "counters") as folder:
        count("PUT", written=5)
        for _ in range(2):
            subprocess.run([sys.executable, "-c", CHILD], check=True)
        count("PUT", written=1)
        counters = StoreCounters(folder)
        for _ in range(2):
            assert counters.counted() == Counter(GET=4, LIST=2, PUT=2, read=14, written=6)
            assert [file.name for file in folder.iterdir()] == [str(os.getpid())]
    assert FOLDER not in os.environ


def test_a_fork_has_a_file_of_its_own(tmp_path):
    with counting_in(tmp_path / "counters") as folder:
        count("HEAD")
        child = os.fork()
        if not child:
            count("HEAD", 3)
            os._exit(0)
        os.waitpid(child, 0)
        count("HEAD")
        assert len(list(folder.iterdir())) == 2
        assert StoreCounters(folder).counted()["HEAD"] == 5


def test_what_user_code_leaves_there_is_passed_over(tmp_path):
    with counting_in(tmp_path / "counters") as folder:
        count("HEAD")
        (folder / "1").write_bytes(b"123456789")
        (folder / "2").symlink_to("/dev/zero")
        os.mkfifo(folder / "3")
        assert StoreCounters(folder).counted() == Counter(HEAD=1)


@pytest.mark.parametrize("folder", [None, "absent"])
def test_without_a_folder_nothing_fails(tmp_path, monkeypatch, folder):
    monkeypatch.delenv(FOLDER, raising=False)
    if folder is not None:
        monkeypatch.setenv(FOLDER, str(tmp_path / folder))
    count("GET")
    assert environment() == ({} if folder is None else {FOLDER: str(tmp_path / folder)})


@pytest.mark.parametrize(("entries", "requests"), [(0, 1), (1, 1), (1000, 1), (1001, 2), (2500, 3)])
def test_a_request_has_up_to_a_thousand_keys(entries, requests):
    assert pages(entries) == requests
