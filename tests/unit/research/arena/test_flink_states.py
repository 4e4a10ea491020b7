import json
import math
from pathlib import Path

import pytest

from millrace_research.arena.policies.flink_autoscaler import FlinkMemory, VertexRescale, decide, evaluate
from millrace_research.arena.policies.flink_metrics import (
    FlinkMetric,
    FlinkOptions,
    MetricWindow,
    Vertex,
    observed_rate,
)

FACTS = json.loads((Path(__file__).parent / "flink_states.json").read_text())
STATES = FACTS["states"]


def number(fact):
    return math.nan if fact is None else float(fact)


def vertices_of(state):
    return [Vertex(name, tuple(inputs), *rest) for name, inputs, *rest in state["vertices"]]


def window_of(state):
    count = len(state["times"])
    return MetricWindow(
        state["times"],
        {
            name: [
                {FlinkMetric(metric): number(values[at]) for metric, values in series.items() if values[at] is not None}
                for at in range(count)
            ]
            for name, series in state["samples"].items()
        },
    )


def options_of(state):
    return FlinkOptions(**(state["options"] | {"excluded": frozenset(state["options"].get("excluded", []))}))


def evaluated(state):
    return evaluate(vertices_of(state), window_of(state), options_of(state))


@pytest.mark.parametrize("state", [state for state in STATES if "error" in state])
def test_our_flink_evaluates_nothing_where_flink_refuses(state):
    with pytest.raises(ValueError, match="unknown arrival rate of source"):
        evaluated(state)


@pytest.mark.parametrize("state", [state for state in STATES if "error" not in state])
def test_our_flink_evaluates_and_decides_as_flink_does(state):
    found = evaluated(state)
    for name, facts in state["evaluated"].items():
        seen = found[name]
        ours = [
            seen.target_rate,
            seen.catch_up_rate,
            seen.true_rate,
            seen.load,
            seen.slow_below,
            seen.idle_above,
        ]
        assert ours == pytest.approx([number(fact) for fact in facts], rel=0, abs=1e-6, nan_ok=True), name
    memory = FlinkMemory({name: VertexRescale(*past) for name, past in state["past"].items()}, state["delayed"])
    parallelism, after = decide(vertices_of(state), found, memory, options_of(state), state["now"])
    assert parallelism == state["parallelism"]
    assert after.waiting == pytest.approx(state["delayed_after"])
    assert (after.rescaled != memory.rescaled) == state["scaled"]
    expected = {name: after.rescaled[name].expected_rate for name in state["expected"]}
    assert expected == pytest.approx({name: number(fact) for name, fact in state["expected"].items()}, abs=1e-3)


@pytest.mark.parametrize("facts", FACTS["observed"])
def test_our_flink_observes_sources_as_flink_does(facts):
    threshold, rate, lag, held_up, before, result = facts
    ours = observed_rate(rate, lag, held_up / 1000, number(before), FlinkOptions(observed_lag=threshold))
    assert ours == pytest.approx(number(result), nan_ok=True)
