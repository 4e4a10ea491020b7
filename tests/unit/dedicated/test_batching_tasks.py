"""Tasks of the figures about batches: what their costs are."""

from __future__ import annotations

import time

import pytest

from bench.batching.tasks import Task, TaskPlan
from millrace_operator.capacity.flow import FlowOperator

COST = 0.001


@pytest.mark.parametrize("share", [0.25, 0.0])
def test_a_task_spends_the_share_of_its_costs_on_the_processor(share):
    begin = time.monotonic()
    plan = TaskPlan(
        operator=FlowOperator("spout", cpu_seconds=COST / 100),
        batch=1,
        consumers=(),
        begin=begin,
        end=begin + 0.2,
        warmup=0.0,
        rate=500.0,
        slowdown=100.0,
        share=share,
    )
    found = Task(plan, None).run()
    assert found.records > 0
    assert found.processor >= found.records * COST * share
