"""Comparisons, simulations and capacities are those of the commands, as small tables."""

from __future__ import annotations

import numpy as np
import pytest

import millrace
from millrace_research.comparison.contenders import ROUTED

KEYS = np.random.default_rng(1).zipf(1.4, 3_000) % 300
FLOW = {
    "operators": {
        "read": {"cpuNanoseconds": 500},
        "count": {"inputs": {"read": "hash"}, "cpuNanoseconds": 4000, "tasks": 2},
    }
}


def test_a_comparison_has_the_placement_costs_of_each_algorithm():
    table = millrace.compare(KEYS, ["hash", "pkg:choices=3", ("pkg", {"choices": 4})], workers=4)
    assert table["algorithm"] == ["hash", "pkg:choices=3", "pkg:choices=4"]
    for row, (name, parameters) in zip(
        table, [("hash", {}), ("pkg", {"choices": 3}), ("pkg", {"choices": 4})], strict=True
    ):
        partitioner = millrace.Partitioner(name, workers=4, **parameters)
        partitioner.route(KEYS)
        assert row["load_imbalance_ratio"] == pytest.approx(partitioner.cost.load_imbalance_ratio)
        assert row["aggregation_cost"] == partitioner.cost.aggregation_cost
        assert row["moved_keys"] is None, "there is one window"


def test_all_algorithms_are_compared_by_default_over_windows():
    table = millrace.compare(KEYS, workers=4, replicas=2, window=1000, slide=500)
    assert table["algorithm"] == list(ROUTED)
    assert all(0 <= share <= 1 for share in table["moved_keys"])


def test_a_table_becomes_arrow_and_pandas_and_html():
    table = millrace.compare(KEYS, "hash", workers=4)
    assert table.to_arrow().to_pylist() == list(table)
    assert table.to_pandas().to_dict("records") == [{**row, "moved_keys": None} for row in table]
    assert "<caption>3,000 records with" in table._repr_html_()
    assert repr(table).splitlines()[1].startswith("algorithm")
    with pytest.raises(KeyError, match="there is no column 'imbalance'; write one of: algorithm, "):
        table["imbalance"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"algorithms": "pgk"}, "algorithms pgk: there is no partitioner 'pgk'; did you mean \"pkg\"?"),
        ({"algorithms": "best"}, "algorithms best: there is no partitioner 'best'; write all, or some of: "),
        ({"algorithms": [5]}, "an algorithm is an int; pass the name or the class of one"),
        ({"algorithms": {"pkg": {}}}, "an algorithm is a dict; pass the name or the class of one"),
        ({"algorithms": millrace.Partitioner("pkg", workers=2)}, "an algorithm is a Partitioner; pass the name or "),
        ({"algorithms": [("pkg", {"choices": 0})]}, "algorithms pkg:choices=0: parameter 'choices' of "),
        ({"algorithms": "pkg:choices"}, "algorithms pkg:choices: 'choices' is not a parameter; "),
        ({"algorithms": ["pkg:choices=x"]}, "algorithms pkg:choices=x: parameter 'choices' of partitioner pkg is 'x'"),
        ({"window": 10, "slide": 3}, "slide 3 does not divide window 10; "),
        ({"window": 0}, "window is 0; write a whole number of at least 1"),
        ({"workers": "8"}, "workers is '8'; write a whole number of at least 1"),
        ({"workers": 0}, "workers is 0; write a whole number of at least 1"),
        ({"keys": []}, "keys: there are no keys; pass at least one"),
    ],
)
def test_a_comparison_that_cannot_be_made_is_explained(arguments, problem):
    with pytest.raises(millrace.MillraceError) as caught:
        millrace.compare(**{"keys": KEYS} | arguments)
    assert str(caught.value).startswith(problem)


def test_a_file_that_is_scaled_unasked_says_by_which_argument_it_is_not(tmp_path, capsys):
    trace = tmp_path / "trace.csv"
    trace.write_text("time,rate\n0,100\n60,300\n120,100\n")
    millrace.simulate(trace, ["fixed-peak"], max_executors=1)
    assert "; peak=300 leaves them as they are" in capsys.readouterr().err
    millrace.simulate(trace, ["fixed-peak"], max_executors=1, peak=300)
    assert capsys.readouterr().err == ""


def test_a_load_in_arrays_is_simulated_at_its_own_rate():
    table = millrace.simulate(([0, 600, 1200], [1e4, 5e4, 1e4]), ["millrace", "oracle"], max_executors=2)
    assert table["policy"] == ["millrace", "oracle"]
    assert table.title.startswith("trace: 0.3 h, ")
    assert table.title.endswith(" records, peak 50,000/s")
    assert table["over_oracle"][1] == 1.0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"policies": "millrase"}, 'policies millrase: there is no policy "millrase"; did you mean "millrace"?'),
        ({"max_executors": 99}, "max_executors is 99; write a whole number from 1 to 32"),
        ({"trace": "spikes"}, 'trace: there is no file "spikes", and no synthetic load of that name; '),
        ({"trace": ([0, 1], [1])}, "trace: trace 'trace' needs a rate for each of two or more times; "),
    ],
)
def test_a_simulation_that_cannot_be_made_is_explained(arguments, problem):
    with pytest.raises(millrace.MillraceError) as caught:
        millrace.simulate(**{"trace": "spike"} | arguments)
    assert str(caught.value).startswith(problem)


def test_the_capacity_of_a_flow_names_bottlenecks_and_the_fewest_tasks():
    found = millrace.capacity(FLOW, 1_000_000)
    assert found.bottlenecks["operator"] == ["count"]
    assert found.bottlenecks["lacks"] == ["CPU"]
    assert dict(zip(found.fewest_tasks["operator"], found.fewest_tasks["tasks"], strict=True)) == {
        "read": 1,
        "count": 4,
    }
    assert found.throughput == {"read": pytest.approx(500_000)}
    assert found.operators["operator"] == ["read", "count"]
    assert "output_network_capacity_records_per_second" not in found.operators.columns, "no operator has a limit"
    assert millrace.capacity(FLOW, {"read": 1_000_000}) == found
    assert "Fewest tasks" in found._repr_html_()


def test_a_flow_without_a_bottleneck_has_an_empty_table():
    assert len(millrace.capacity(FLOW, 1_000).bottlenecks) == 0
    assert "Overloaded" not in repr(millrace.capacity(FLOW, 1_000)), "a table without a row is left out"


@pytest.mark.parametrize(
    ("flow", "rate", "problem"),
    [
        ({"operators": {"a": {"cpu": 1, "cpuNanoseconds": 2}}}, 5, 'operators.a.cpu: there is no field "cpu" here; '),
        (FLOW, {"reads": 5}, 'rate: "reads" is not a source of the flow; did you mean "read"?'),
        (FLOW, -1, 'rate: "-1" is not a rate; write records per second'),
        ("no/flow.yaml", 5, "no/flow.yaml: there is no such file; "),
    ],
)
def test_a_flow_that_cannot_be_planned_is_explained(flow, rate, problem):
    with pytest.raises(millrace.MillraceError) as caught:
        millrace.capacity(flow, rate)
    assert str(caught.value).startswith(problem)
