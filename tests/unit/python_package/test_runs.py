"""A run reads its process to the end, whatever else that process has left behind."""

from __future__ import annotations

import os
import signal

import pytest

import millrace
from millrace import runs

CHILD = """#!/bin/sh
sleep 600 >/dev/null &
echo $! >{folder}/left
echo no more memory >&2
kill -9 $$
"""


@pytest.fixture
def process(tmp_path, monkeypatch):
    """A process that was killed, after it has started one that holds its standard error open."""
    (tmp_path / "child").write_text(CHILD.format(folder=tmp_path))
    (tmp_path / "child").chmod(0o755)
    monkeypatch.setattr(runs.sys, "executable", str(tmp_path / "child"))
    monkeypatch.setattr(runs, "_LAST_LINES_SECONDS", 1.0)
    source = {"files": {"path": "in", "format": "csv"}, "schema": "who STRING"}
    query = millrace.StreamQuery("t", sources={"e": source}, query="SELECT who FROM e")
    yield runs._Process("run", query.model, tmp_path, debug=True)
    os.kill(int((tmp_path / "left").read_text()), signal.SIGKILL)


def test_a_descendant_that_outlives_a_killed_process_does_not_hold_up_its_end(process):
    assert list(process.events()) == []
    assert "ended with status -9: no more memory" in str(process.ended_early())
