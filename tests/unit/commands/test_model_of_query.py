"""``millrace model`` on recordings, and the recording of a run by its metrics."""

import json
import sys
import threading
from dataclasses import asdict
from pathlib import Path

import pytest

from builders import PIN, a_batch
from millrace_jobs.cli import main
from millrace_jobs.run.job_metrics import JobMetrics
from millrace_jobs.run.observer import Health
from millrace_operator.commands.recording import Recording, read_recording
from millrace_operator.scaling.batch_time.calibration import Calibration
from millrace_operator.scaling.shape import Network, Shape
from millrace_support.http_server import HttpServer
from spark.cli import Result
from unit.scaling.true_job import BOUNDS, INTERVAL, PARTITIONS, TrueJob, plan


@pytest.fixture
def model(tmp_path, monkeypatch, capfd):
    """Runs ``millrace model`` in this process, in a folder with a recording of a job whose costs are known."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", "kubeconfig")
    recording().write(Path("q.json"))

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["millrace", "model", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        return Result(end.value.code, *capfd.readouterr())

    return run


SHAPES = [plan(4, 8, 4)] * 4 + [plan(2, 4, 2)] * 4


def recording(shapes=SHAPES, network=None):
    calibration = Calibration(BOUNDS, PARTITIONS)
    for number, shape in enumerate(shapes):
        rows = 4e5 * (1 + number % 2)
        calibration.add(TrueJob(seed=number).observe(shape, rows))
    return Recording("trips", BOUNDS.executor_cores, PARTITIONS, network, calibration.save())


def document(result):
    assert (result.status, result.err) == (0, "")
    return json.loads(result.out)


def test_a_recording_is_the_same_after_it_was_written_and_read(tmp_path):
    written = recording(network=Network(1e6))
    written.write(tmp_path / "q.json")
    read = read_recording(tmp_path / "q.json")
    assert read == written
    assert read.newest.plan == plan(2, 4, 2)
    assert read.learned.model().costs == pytest.approx(written.learned.model().costs)


def test_a_prediction_comes_true_under_a_shape_that_never_ran(model):
    """The job whose costs are known takes what is predicted for a shape that it never ran under."""
    present = document(model("predict", "q.json", "--format", "json"))
    facts = present["query"]
    assert (facts["executors"], facts["parallelism"], facts["replicas"]) == (2, 4, 2)
    assert facts["batch_interval_seconds"] == INTERVAL
    assert [each["name"] for each in present["operators"]] == ["source", "route", "combine", "merge"]
    shares = present["time_share_of_operators"].values()
    left = present["time_share_left_to_operators"]
    assert sum(shares) + 1 - left == pytest.approx(facts["utilization"])
    other = ("--executors", "8", "--parallelism", "8", "--replicas", "8", "--rate", "80000")
    found = document(model("predict", "q.json", *other, "--format", "json"))["query"]
    seconds = TrueJob(seed=99).observe(plan(8, 8, 8), 80_000 * INTERVAL).seconds
    assert found["utilization"] == pytest.approx(seconds / INTERVAL, rel=0.15)


def test_a_bottleneck_is_reported_with_what_would_help(model):
    assert "no operator is overloaded" in model("bottleneck", "q.json", "--rate", "1000").out
    found = document(model("bottleneck", "q.json", "--rate", "400000", "--format", "json"))
    assert found["bottlenecks"]
    assert found["query"]["utilization"] > 1
    assert found["query"]["executors_needed"] > 2
    enough = str(found["query"]["executors_needed"])
    shape = ("--executors", enough, "--parallelism", enough, "--replicas", enough)
    assert "no operator is overloaded" in model("bottleneck", "q.json", "--rate", "400000", *shape).out


def test_predictions_are_printed_as_tables(model):
    result = model("predict", "q.json", "--rate", "60000")
    assert result.status == 0
    assert result.out.startswith("trips: 2/4/2 (executors/parallelism/replicas), a batch every 10 s\nW is predicted")
    assert "In turn on 2 cores, of the time: route " in result.out
    assert "of 60,000 records/s get through" in result.out
    result = model("minimize", "q.json", "--rate", "60000")
    assert "cores are busy; batches of this size fill in" in result.out
    short = model("predict", "q.json", "--rate", "60000", "--interval", "0.2").out
    assert "even without its stages: try a longer --interval" in short
    assert "source: 0 of 60,000 records/s get through" in short


def test_options_that_cannot_be_used_are_refused(model):
    model("predict").assert_failed("a model covers one query", "write either RECORDING.json or --query NAME")
    model("predict", "q.json", "--query", "q").assert_failed("a model covers one query")
    model("predict", "flow.yaml").assert_failed("flow.yaml is not a recording of a query", "write `millrace flow`")
    model("predict", "q.json", "--rate", "a").assert_failed('"a" is not a rate')
    model("predict", "q.json", "--rate", "1", "--rate", "2").assert_failed("write one --rate")
    model("predict", "q.json", "--rate", "0").assert_failed("no records arrive", "above 0")
    model("predict", "--query", "q").assert_failed("there is no kubeconfig kubeconfig")
    model("record", "new.json").assert_failed("write either --query NAME or --metrics URL")
    model("record", "new.json", "--query", "q").assert_failed("there is no kubeconfig kubeconfig")


@pytest.mark.parametrize("text", ["{}", "no JSON", '{"query": 1}'])
def test_a_file_that_is_no_recording_is_refused(model, text):
    Path("q.json").write_text(text, encoding="utf-8")
    model("predict", "q.json").assert_failed("q.json is not a recording", "millrace model record")


def test_a_recording_of_too_few_or_other_observations_is_refused(model):
    recording(shapes=()).write(Path("q.json"))
    model("predict", "q.json").assert_failed("too few observations of trips")
    of_another_version = json.loads(json.dumps(asdict(recording())))
    of_another_version["calibration"]["observations"][0]["seen"]["of_the_future"] = 1
    Path("q.json").write_text(json.dumps(of_another_version), encoding="utf-8")
    model("predict", "q.json").assert_failed("cannot be read", "the version of millrace that recorded them")
    model("predict", "away.json").assert_failed("away.json cannot be read")


def test_a_run_is_recorded_by_its_metrics(model):
    """Batches end while the metrics are watched, with records of a known size."""
    metrics, health = JobMetrics("trips"), Health(allowed_silence=60)
    server = HttpServer(metrics.registry, health.liveness, health.readiness)
    server.start()
    over = threading.Event()

    def run_batches() -> None:
        while not over.wait(0.1):
            metrics.record(a_batch(seconds=0.08, interval=0.1, waiting=0, pin=PIN))

    batches = threading.Thread(target=run_batches)
    batches.start()
    try:
        result = model("record", "run.json", "--metrics", f"{server.url}/metrics", "--seconds", "1", "--cores", "3")
    finally:
        over.set()
        batches.join()
        server.close()
    assert (result.status, result.err) == (0, "")
    found = read_recording(Path("run.json"))
    assert result.out == f"run.json: {len(found.calibration['observations'])} observations of trips\n"
    assert (found.query, found.executor_cores, found.state_partitions) == ("trips", 3, 4)
    assert found.newest.plan == Shape(1, PIN.workers, PIN.replicas)
    assert found.newest.rows == 5000
    sizes = found.learned.model().sizes
    assert sizes is not None
    assert (sizes.read, sizes.routed, sizes.passing) == (40, 20, 0.98)
    predicted = document(model("predict", "run.json", "--format", "json"))
    assert predicted["operators"][1]["input_record_bytes"] == 40


def test_addresses_without_metrics_of_a_query_are_refused(model):
    registry, health = JobMetrics("trips").registry, Health(allowed_silence=60)
    server = HttpServer(registry, health.liveness, health.readiness)
    server.start()
    try:
        model("record", "a.json", "--metrics", f"{server.url}/nothing").assert_failed("answers HTTP 404")
        model("record", "a.json", "--metrics", f"{server.url}/healthz").assert_failed("/healthz has no metrics")
    finally:
        server.close()
    model("record", "a.json", "--metrics", f"{server.url}/metrics").assert_failed("cannot be read", "millrace run")
