"""What ``status --wait`` waits for."""

from __future__ import annotations

import pytest

from millrace_operator.commands.changes import is_running
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
