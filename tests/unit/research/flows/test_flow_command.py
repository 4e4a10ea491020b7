"""``millrace flow`` as users meet it: what it prints, and what it refuses."""

import json
import re
import sys
from pathlib import Path

import pytest

from millrace_jobs.cli import main
from spark.cli import Result

LINEAR_ROAD = str(Path(__file__).parents[4] / "examples/flows/linear-road.yaml")
TWO_SOURCES = """
taskMegabitsPerSecond: 1
operators:
  orders: {cpuNanoseconds: 1000, recordBytes: 100}
  rules: {cpuNanoseconds: 1000, recordBytes: 50, tasks: 2}
  match:
    inputs: {orders: hash, rules: broadcast}
    fetchNanoseconds: 400000
    cpuNanoseconds: 500000
    emitNanoseconds: 100000
    selectivity: 0.5
    recordBytes: 20
    tasks: 3
    batch: 5
  sink: {inputs: {match: random}, cpuNanoseconds: 1}
"""


@pytest.fixture
def flow(tmp_path, monkeypatch, capfd):
    """Runs a command in this process; a flow that is given as text is in ``flow.yaml``."""
    monkeypatch.chdir(tmp_path)

    def run(command, *options, text=None):
        if text is not None:
            Path("flow.yaml").write_text(text, encoding="utf-8")
        file = LINEAR_ROAD if text is None else "flow.yaml"
        monkeypatch.setattr(sys, "argv", ["millrace", "flow", command, file, *options])
        with pytest.raises(SystemExit) as end:
            main()
        return Result(end.value.code, *capfd.readouterr())

    return run


def rows(text):
    """Cells of table lines by their first one."""
    lines = (re.split(r" {2,}", line.strip()) for line in text.splitlines())
    return {name: cells for name, *cells in reversed(list(lines))}


def document(result):
    assert (result.status, result.err) == (0, "")
    return json.loads(result.out)


def test_minimize_prints_table_4_3(flow):
    result = flow("minimize", "--rate", "500000")
    found = rows(result.out)
    assert result.status == 0
    assert {name: found[name][:2] for name in ("spout", "parse", "agg", "block", "move", "toll")} == {
        "spout": ["1", "15"],
        "parse": ["2", "387"],
        "agg": ["2", "1"],
        "block": ["1", "-"],
        "move": ["1", "1"],
        "toll": ["1", "-"],
    }
    assert "8 tasks in all" in result.out
    assert "1.57 ms / 1.57 ms added" in result.out


@pytest.mark.parametrize(("batching", "lacks"), [("on", []), ("off", ["spout", "parse"])])
def test_bottlenecks_appear_without_batching(flow, batching, lacks):
    found = document(flow("bottleneck", "--rate", "500000", "--batching", batching, "--format", "json"))
    assert [each["name"] for each in found["bottlenecks"]] == lacks


def test_predict_without_batching_counts_the_cost_of_each_record(flow):
    found = document(flow("predict", "--rate", "500000", "--batching", "off", "--format", "json"))
    parse = next(each for each in found["operators"] if each["name"] == "parse")
    assert parse["processing_capacity_records_per_second"] == pytest.approx(2e9 / (7400 + 3500 + 0.99 * 2600))


def test_minimize_without_batching_prints_17_tasks(flow):
    result = flow("minimize", "--rate", "500000", "--batching", "off")
    assert [rows(result.out)[name][0] for name in ("spout", "parse", "agg", "block", "move", "toll")] == list("275111")
    assert "17 tasks in all" in result.out
    assert "buffers" not in result.out


def test_minimize_writes_json(flow):
    report = document(flow("minimize", "--rate", "500000", "--format", "json"))
    assert (report["tasks"], report["batching"]) == (8, True)
    assert report["workload_records_per_second"] == {"spout": 500_000}
    parse = report["operators"][1]
    assert (parse["name"], parse["tasks"], parse["output_batch_records"]) == ("parse", 2, 387)
    assert parse["utilization"] == pytest.approx(1, abs=1e-4)
    distinct = report["buffers"]["distinct"]
    assert distinct["operators"][1] == {
        "name": "parse",
        "buffers_per_task": 2,
        "buffered_records_per_task": 774,
        "buffered_bytes_per_task": 774 * 32,
        "records_per_filled_buffer": 774,
        "mean_wait_seconds": pytest.approx(386 / 247_500),
    }
    assert distinct["added_latency_seconds"] == pytest.approx(386 / 247_500 + 7 / 500_000)


def test_the_example_has_the_configuration_of_the_table(flow):
    result = flow("bottleneck", "--rate", "500000")
    assert (result.status, result.out) == (0, "no operator is overloaded\n")
    found = document(flow("bottleneck", "--rate", "500010", "--format", "json"))["bottlenecks"]
    assert [operator["name"] for operator in found] == ["parse"]


def test_predict_prints_what_gets_through(flow):
    result = flow("predict", "--rate", "600000")
    assert rows(result.out)["parse"] == ["2", "387", "600,000", "15", "107", "500,002", "120.0%", "500,002", "CPU"]
    assert "spout: 500,002 of 600,000 records/s get through" in result.out


def test_predict_writes_json(flow):
    report = document(
        flow("predict", "--rate", "orders=600", "--rate", "rules=500", "--format", "json", text=TWO_SOURCES)
    )
    assert report["task_bandwidth_bits_per_second"] == 1e6
    match = report["operators"][2]
    assert match["input_records_per_second"] == 600 + 3 * 500
    assert match["input_batch_records"] == 1
    assert match["input_record_bytes"] == pytest.approx((600 * 100 + 1500 * 50) / 2100)
    assert match["processing_capacity_records_per_second"] == pytest.approx(3 / 910e-6)
    assert match["input_network_capacity_records_per_second"] == pytest.approx(
        3 * 1e6 / 8 / match["input_record_bytes"]
    )
    assert match["overloaded"] == []
    assert report["operators"][0]["input_batch_records"] is None
    assert report["operators"][3]["output_batch_records"] is None
    assert report["operators"][3]["output_network_capacity_records_per_second"] is None
    assert report["throughput_records_per_second"] == {"orders": 600, "rules": 500}
    assert report["buffers"]["shared"]["operators"][2]["buffered_records_per_task"] == 5


def test_one_rate_is_for_every_source(flow):
    report = document(flow("predict", "--rate", "50", "--format", "json", text=TWO_SOURCES))
    assert report["workload_records_per_second"] == {"orders": 50, "rules": 50}


def test_bottlenecks_are_printed_with_what_would_help(flow):
    result = flow("bottleneck", "--rate", "orders=3000", "--rate", "rules=1000", text=TWO_SOURCES)
    found = rows(result.out)
    assert found["orders"][0] == "output network"
    assert found["orders"][-1] == "3 tasks"
    assert found["match"][0] == "queue"
    result = flow("bottleneck", "--rate", "orders=1200", "--rate", "rules=800", text=TWO_SOURCES)
    assert rows(result.out)["match"][-1] == "input batches of 2 records (from orders, rules), or 5 tasks"


def test_input_batches_that_are_large_enough_are_not_made_larger(flow):
    costs = "fetchNanoseconds: 9.0e+7, cpuNanoseconds: 9.0e+7, emitNanoseconds: 9.0e+7"
    text = (
        "operators:\n  s: {cpuNanoseconds: 0, batch: 61}\n"
        f"  v: {{inputs: {{s: random}}, {costs}}}\n  t: {{inputs: {{v: random}}, cpuNanoseconds: 0}}"
    )
    # 10 / (10 / 61) is a little more than 61 in floating point
    assert (
        rows(flow("bottleneck", "--rate", "10", text=text).out)["v"][-1] == "output batches of 11 records, or 2 tasks"
    )


def test_a_bottleneck_that_no_number_of_tasks_helps_is_reported(flow):
    options = "--rate", "orders=1", "--rate", "rules=1600"
    result = flow("bottleneck", *options, text=TWO_SOURCES.replace("500000", "700000"))
    assert rows(result.out)["match"][0] == "CPU"
    assert rows(result.out)["match"][-1] == "no number of tasks: what is broadcast to it fills each of them"
    result = flow("minimize", *options, text=TWO_SOURCES.replace("500000", "700000"))
    assert refused(result) == [
        "flow.yaml:6: operators.match: cannot keep up with what is broadcast to it, however many tasks it has; "
        "lower its costs or the rates, or connect it by hash or random"
    ]


def refused(result):
    assert (result.status, result.out) == (1, "")
    return result.err.replace("error: ", "").splitlines()


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        (["many"], '--rate: "many" is not a rate; write records per second, such as 500000'),
        (["-1"], '--rate: "-1" is not a rate; write records per second, such as 500000'),
        (["nan"], '--rate: "nan" is not a rate; write records per second, such as 500000'),
        (["inf"], '--rate: "inf" is not a rate; write records per second, such as 500000'),
        (["orders=5"], "--rate: rules of flow.yaml got no rate; add --rate rules=NUMBER"),
        (["orders=5", "6"], '--rate: "6" names no source; write --rate orders=6, or one rate for all sources'),
        (["order=5", "rules=1"], '--rate: "order" is not a source of flow.yaml; did you mean "orders"?'),
        (["orders=5", "orders=6"], '--rate: the rate of "orders" is given twice; keep one of them'),
    ],
)
def test_wrong_rates_are_refused(flow, rates, said):
    options = [option for rate in rates for option in ("--rate", rate)]
    assert refused(flow("predict", *options, text=TWO_SOURCES)) == [said]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1", ["flow.yaml:1: operators: is required", 'flow.yaml:1: a: there is no field "a" here']),
        ("operators: {}", ["flow.yaml:1: operators: there are 0 entries; write at least 1"]),
        ("operators:\n  a: {}", ["flow.yaml:2: operators.a.cpuNanoseconds: is required; write cpuNanoseconds: 3500"]),
        (
            "operators:\n  a:\n    cpuNanoseconds: -1\n    selectivity: many\n    tasks: 0\n    bacth: 2",
            [
                "flow.yaml:3: operators.a.cpuNanoseconds: -1 is less than 0.0; write a number of at least 0.0",
                'flow.yaml:4: operators.a.selectivity: "many" is not a number',
                "flow.yaml:5: operators.a.tasks: 0 is less than 1; write a number of at least 1",
                'flow.yaml:6: operators.a.bacth: there is no field "bacth" here; did you mean "batch"?',
            ],
        ),
        (
            "operators:\n  a: {cpuNanoseconds: 1}\n  b:\n    cpuNanoseconds: 1\n    inputs: {a: direct}",
            ['flow.yaml:5: operators.b.inputs.a: "direct" is not a connection; write one of random, hash, broadcast'],
        ),
        (
            "operators:\n  a: {cpuNanoseconds: 1}\n  b:\n    cpuNanoseconds: 1\n    inputs:\n      x: hash",
            ['flow.yaml:6: operators.b.inputs.x: there is no operator "x"; write one of a'],
        ),
        (
            "operators:\n  a: {cpuNanoseconds: 1, inputs: {b: hash}}\n  b: {cpuNanoseconds: 1, inputs: {a: hash}}",
            ["the inputs form a cycle"],
        ),
        (
            "operators:\n  a: {cpuNanoseconds: 1}\n  b: {cpuNanoseconds: 1}",
            ["flow.yaml:3: operators.b: is not connected to a; give it inputs"],
        ),
        (
            "taskMegabitsPerSecond: 10\noperators:\n  a:\n    cpuNanoseconds: 1\n    fetchNanoseconds: 5\n"
            "  b: {cpuNanoseconds: 1, inputs: {a: hash}}",
            [
                "flow.yaml:3: operators.a.recordBytes: is required if taskMegabitsPerSecond is set",
                "flow.yaml:5: operators.a.fetchNanoseconds: a source has no queue to fetch from",
            ],
        ),
        (
            "operators:\n  'a b': {cpuNanoseconds: 1}",
            ['flow.yaml:2: operators.a b: "a b" is not a name for an operator'],
        ),
        (
            "operators:\n  1st: {cpuNanoseconds: 1}",
            [
                'flow.yaml:2: operators.1st: "1st" is not a name for an operator; '
                "write at most 63 letters, digits, '_', '.' and '-', a letter first"
            ],
        ),
        ("x: [", ["flow.yaml:1: is not valid YAML"]),
        ("operators: {a: {cpuNanoseconds: 1}}\n---\nb: 1", ["flow.yaml:3: a flow is one document"]),
    ],
)
def test_wrong_files_are_refused_with_their_lines(flow, text, said):
    lines = refused(flow("predict", "--rate", "1", text=text))
    assert len(lines) == len(said)
    assert all(start in line for line, start in zip(lines, said, strict=True)), lines


def test_a_missing_file_is_one_sentence(flow, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(sys, "argv", ["millrace", "flow", "predict", "none.yaml", "--rate", "1"])
    with pytest.raises(SystemExit):
        main()
    assert "none.yaml: there is no such file" in capfd.readouterr().err


def test_a_query_and_a_missing_rate_are_refused(flow):
    query = "apiVersion: millrace.io/v1alpha1\nkind: StreamQuery"
    assert refused(flow("predict", "--rate", "1", text=query)) == [
        "flow.yaml:1: is a StreamQuery, and a model is of a flow with costs; plan a running query with "
        "`millrace model`, or write its flow and costs as docs/capacity.md says"
    ]
    missing = flow("predict")
    assert missing.status == 2
    assert "Missing option '--rate'" in missing.err
