"""A generated query over messages (``tests/trouble``); ``tests/spark/test_trouble.py`` has those over files."""

from __future__ import annotations

import itertools
import os

import pytest

from lab.turns import turn
from trouble.cases import PLANS
from trouble.findings import scratch
from trouble.judging import judge
from trouble.messages import BROKER
from trouble.shapes import draw_case

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

SEED = os.environ.get("MILLRACE_TROUBLE_SEED") or str(turn() or 0)
WITHOUT = frozenset({"dedicated", "doubtful"})


def test_every_plan_gives_the_right_rows_of_messages(broker, spark, monkeypatch):
    monkeypatch.setenv(BROKER, broker.bootstrap)
    drawn = (draw_case(f"{SEED}/{number}", WITHOUT) for number in itertools.count())
    case = next(case for case in drawn if all(arrival.kind == "kafka" for arrival in case.arrivals))
    with scratch() as folder:
        found = judge(case, folder, case.plans(PLANS))
    said = [f"{finding.kind} ({finding.plan}): {finding.details}" for finding in found]
    repeat = f"case {case.name}, repeat with MILLRACE_TROUBLE_SEED={SEED}"
    assert not found, "\n".join([repeat, case.query.question().spark, *said])
