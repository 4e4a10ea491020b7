"""What ``status --wait`` waits for."""

from __future__ import annotations

import sys

import pytest

from millrace_operator.commands import changes
from millrace_operator.commands.changes import is_running, wait_until
from millrace_operator.lifecycle.query_view import QueryView

from .queries import BUSY, query

APPLIED = BUSY | {"plan": BUSY["plan"] | {"appliedEpoch": 4}}


def test_a_query_that_runs_on_its_plan_is_running():
    assert is_running(QueryView(query(APPLIED)))


@pytest.mark.parametrize(
    "status",
    [
        None,
        BUSY,
        BUSY | {"plan": {name: value for name, value in BUSY["plan"].items() if name != "appliedEpoch"}},
        APPLIED | {"plan": None},
        APPLIED | {"phase": "Deploying"},
        APPLIED | {"observedGeneration": 2},
    ],
    ids=["unseen", "a plan before", "no plan applied", "no plan", "not running", "a spec before"],
)
def test_a_query_that_does_not_run_on_its_plan_yet_is_waited_for(status):
    assert not is_running(QueryView(query(status)))


@pytest.mark.parametrize("is_terminal", [True, False])
def test_in_a_terminal_each_change_of_what_is_waited_for_is_shown_once(monkeypatch, capsys, is_terminal):
    seen = [QueryView(query(APPLIED | {"phase": phase})) for phase in ("Pending", "Deploying", "Deploying", "Running")]

    class Queries:
        def __init__(self, cluster):
            pass

        def get(self, name):
            return seen.pop(0)

    monkeypatch.setattr(changes, "UserQueries", Queries)
    monkeypatch.setattr(changes, "_POLL_SECONDS", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal, raising=False)
    wait_until(None, "busy", "to run on its plan", is_running, 60.0)
    said = capsys.readouterr()
    assert said.out == ""
    phases = [line.partition("phase ")[2].partition(",")[0] for line in said.err.splitlines()]
    assert phases == (["Pending", "Deploying"] if is_terminal else [])
    assert all(line.startswith("waiting for busy to run on its plan: it has phase ") for line in said.err.splitlines())
