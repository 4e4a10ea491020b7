"""``millrace simulate`` as users meet it: what it prints, what it writes, and what it refuses."""

import json
import re
import sys

import pytest
import typer
from typer.testing import CliRunner

from millrace_api.errors import MillraceError
from millrace_research.arena.command import simulate
from millrace_research.arena.comparison import NAMES
from millrace_research.arena.scenarios import SYNTHETIC

APP = typer.Typer()
APP.command()(simulate)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the command on ``trace.csv``, ten minutes of one load, with these options instead of or besides it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trace.csv").write_text("time,rate\n0,100\n300,100\n301,300\n600,300\n")
    (tmp_path / "bad.csv").write_text("time,rate\n0,100\n60,many\n")
    (tmp_path / "zero.csv").write_text("time,rate\n0,0\n600,0\n")
    (tmp_path / "short.csv").write_text("time,rate\n0,100\n3,100\n")

    def invoke(**options):
        usual = {"trace": "trace.csv", "policy": "oracle,cpu"}
        given = [f"--{name.replace('_', '-')}={value}" for name, value in (usual | options).items()]
        return CliRunner().invoke(APP, given)

    return invoke


def test_simulate_prints_a_table_of_policies(run):
    result = run()
    assert result.exit_code == 0
    assert result.stdout.startswith("trace: 0.2 h, ")
    assert "batches of 2 s, 1 to 8 executors of 2 cores" in " ".join(result.output.split())
    assert "oracle" in result.output
    assert "cpu" in result.output


def test_a_recorded_trace_that_is_scaled_unasked_says_so(run):
    said = run(policy="cpu").stderr
    assert re.match(
        r"note: the rates of trace.csv are scaled by \S+, from a peak of 300/s to [\d,]+/s; --peak 300 ", said
    )
    assert run(policy="cpu", peak="300").stderr == ""


def test_a_small_backlog_is_shown_in_records(run):
    result = run(peak="1000", policy="cpu")
    assert result.exit_code == 0
    assert "0.0 M" not in result.output


def test_simulate_writes_json_and_a_picture(run, tmp_path):
    result = run(format="json", plot="out.svg", interval="5", max_executors="3", peak="1000", seed="4")
    assert result.exit_code == 0
    said = json.loads(result.stdout)
    assert [found["policy"] for found in said["policies"]] == ["oracle", "cpu"]
    assert (said["interval_seconds"], said["max_executors"], said["peak_rate"], said["seed"]) == (5.0, 3, 1000.0, 4)
    assert "</svg>" in (tmp_path / "out.svg").read_text()


@pytest.mark.parametrize("interval", ["0.5", "60"])
def test_simulate_takes_the_shortest_interval_and_a_long_one(run, interval):
    result = run(format="json", interval=interval, max_executors="1", policy="oracle,cpu,prompt")
    assert all(found["core_hours"] > 0 for found in json.loads(result.stdout)["policies"])


def test_simulate_runs_a_synthetic_load(run):
    result = run(trace="constant", policy="fixed-peak", format="json")
    assert json.loads(result.stdout)["trace"] == "constant"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"trace": "gone.csv"}, '--trace: there is no file "gone.csv", and no synthetic load of that name; check'),
        ({"trace": "bad.csv"}, 'bad.csv:3: "many": not a rate; write a number of records per second'),
        ({"trace": "zero.csv"}, "zero.csv: cannot be used: trace 'zero' is 0 throughout"),
        ({"trace": "."}, ".: cannot be used: Is a directory"),
        (
            {"interval": "100"},
            "trace.csv: the trace is 600 s long, less than 10 intervals of 100 s; write an --interval of at most 60 s",
        ),
        (
            {"trace": "short.csv"},
            "short.csv: the trace is 3 s long, less than 10 intervals of 2 s; name a --trace of at least 5 s",
        ),
        ({"policy": "cpus"}, '--policy cpus: there is no policy "cpus"; did you mean "cpu"?'),
        ({"policy": "cpu,"}, '--policy cpu,: there is no policy ""; remove the comma'),
        ({"policy": ""}, '--policy : there is no policy ""; write one of millrace, prompt'),
        ({"policy": "cpu,cpu"}, "--policy cpu,cpu names a policy twice; name each once"),
        ({"interval": "0"}, "--interval is 0; write 0.5 to 600 seconds"),
        ({"max_executors": "0"}, "--max-executors is 0; write a whole number from 1 to 32"),
        ({"peak": "-1"}, "--peak is -1; write a number of records per second above 0"),
        ({"peak": "nan"}, "--peak is nan; write"),
        ({"seed": "-1"}, "--seed is -1; write 0 or more"),
        ({"plot": "out.png"}, "--plot out.png is not the name of an SVG file; write a name that ends in .svg"),
        (
            {"plot": "gone/out.svg"},
            "--plot cannot be written to gone/out.svg: No such file or directory; "
            "write a path in a folder that exists and is writable",
        ),
    ],
)
def test_a_mistake_is_one_sentence(run, options, said):
    error = run(**options).exception
    assert isinstance(error, MillraceError)
    assert str(error).startswith(said)
    assert "\n" not in str(error)


def test_a_picture_needs_an_extra(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert str(run(plot="out.svg").exception).startswith("--plot needs matplotlib, which is not installed; install it")


def test_the_help_names_every_policy_and_load():
    words = " ".join(CliRunner().invoke(APP, ["--help"], env={"COLUMNS": "500"}).output.split())
    assert ", ".join(NAMES) in words
    assert ", ".join(SYNTHETIC) in words


def test_a_peak_at_which_nothing_arrives_is_refused(run):
    with pytest.raises(MillraceError, match="no records arrive at a --peak"):
        raise run(peak="0.00001").exception


def test_a_folder_is_no_picture(run, tmp_path):
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(MillraceError, match="cannot be written to"):
        raise run(plot="folder.svg").exception


def test_an_interval_that_no_plan_can_keep_is_refused(run):
    with pytest.raises(MillraceError, match="32 executors have no time for records"):
        raise run(interval="0.5", max_executors="32", policy="lag").exception
