"""``millrace bench partitioners`` as users meet it: what it prints, what it writes, and what it refuses."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from millrace_jobs.cli import main
from spark.cli import Result

Bench = Callable[..., Result]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Bench:
    """Runs the command in this process on ``stream.csv``, with these options instead of or besides the usual ones."""
    monkeypatch.chdir(tmp_path)
    lines = [f"{second},key{second % 7}" for second in range(60)]
    Path("stream.csv").write_text("\n".join(["at,key", *lines]), encoding="utf-8")
    usual = {"input": "stream.csv", "key": "key", "workers": "4", "window": "20", "algorithm": "hash,pkg:choices=3"}

    def run(**changes: str | None) -> Result:
        options = [f"--{name}={value}" for name, value in {**usual, **changes}.items() if value is not None]
        monkeypatch.setattr(sys, "argv", ["millrace", "bench", "partitioners", *options])
        with pytest.raises(SystemExit) as end:
            main()
        assert isinstance(end.value.code, int)
        return Result(end.value.code, *capfd.readouterr())

    return run


def test_bench_prints_a_table_of_partitioners(bench: Bench) -> None:
    result = bench()
    assert result.status == 0
    assert result.err == ""
    assert "stream.csv: 60 records with 7 different values of key" in result.out
    assert "4 workers, 1 replicas; 3 windows of 20 records by 20 records" in result.out
    assert "pkg:choices=3" in result.out


def test_bench_writes_json_assignments_and_a_picture(bench: Bench, tmp_path: Path) -> None:
    result = bench(
        format="json", time="at", window="20s", slide="10s", replicas="2", assignments="ids", plot="out.svg", seed="7"
    )
    assert result.status == 0
    report = json.loads(result.out)
    assert [found["label"] for found in report["algorithms"]] == ["hash", "pkg:choices=3"]
    assert [window["rows"] for window in report["algorithms"][0]["windows"]] == [10, 20, 20, 20, 20, 20]
    assert (report["workers"], report["replicas"], report["seed"]) == (4, 2, 7)
    assert {path.name for path in Path("ids").iterdir()} == {"hash.npy", "pkg-choices=3.npy"}
    assert np.load("ids/hash.npy").shape == (60,)
    assert "</svg>" in Path("out.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"input": "gone.csv"}, "gone.csv: there is no such file; check the path"),
        ({"key": "user"}, "stream.csv: has no column user; its columns are at, key"),
        ({"time": "when", "window": "20s"}, "stream.csv: has no column when; its columns are at, key"),
        ({"time": "key", "window": "20s"}, "stream.csv: column key (TIMESTAMP): "),
        ({"slide": "7"}, "--slide 7 does not divide --window 20; write a window that is a whole number of slides long"),
        ({"window": "20s"}, "--window 20s is not a number of records; write a whole number of at least 1, or name"),
        ({"workers": "0"}, "--workers is 0; write a whole number from 1 to 1000000"),
        ({"key": "at,key"}, "has no column at,key; its columns are at, key; repeat --key for each column of the key"),
        ({"algorithm": "native"}, "--algorithm native: native routes nothing; write all, or some of: shuffle, hash, "),
        ({"algorithm": "hash,"}, "--algorithm hash,: there is an empty name; remove the comma"),
        ({"resize": "0"}, "--resize is 0; write a whole number from 1 to 1000000"),
        ({"algorithm": "pkg:choices=0"}, "parameter 'choices' of partitioner pkg is 0"),
        ({"assignments": "stream.csv/ids"}, "assignments cannot be written to stream.csv/ids: Not a directory"),
        ({"plot": "out.svg", "input": "gone.csv"}, "gone.csv: there is no such file; check the path"),
        ({"plot": "out.png"}, "--plot out.png is not the name of an SVG file; write a name that ends in .svg"),
    ],
)
def test_a_mistake_is_one_sentence(bench: Bench, changes: dict[str, str], said: str) -> None:
    bench(**changes).assert_failed(said)
    assert not Path("out.svg").exists()


def test_bench_reports_the_keys_that_a_resize_moves(bench: Bench) -> None:
    result = bench(format="json", resize="6")
    assert result.status == 0
    report = json.loads(result.out)
    assert report["resize"] == 6
    assert [found["moved_on_resize"]["keys"] for found in report["algorithms"]] == [7, 7]


def test_a_picture_needs_an_extra(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    bench(plot="out.svg").assert_failed("--plot needs matplotlib, which is not installed; install it: pip install")


def test_help_is_there_without_an_algorithm(bench: Bench) -> None:
    result = bench(algorithm=None)
    assert result.status == 2
    assert "--algorithm" in result.err
