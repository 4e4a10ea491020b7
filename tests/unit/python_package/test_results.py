"""Results are read from the files of a sink, as they are or as the newest row of each key."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millrace
from millrace.results import KeptResults
from millrace_api.model.sinks import result_file

SOURCE = {"files": {"path": "in", "format": "csv"}, "schema": "who STRING, day STRING"}


def query(sql="SELECT who, count(*) AS n FROM e GROUP BY who", **spec):
    return millrace.StreamQuery("t", sources={"e": SOURCE}, query=sql, **spec)


def sink(folder, **files):
    return {"files": {"path": str(folder), **files}}


def put(folder, batch, rows, index=0):
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / result_file(batch, index, "parquet"))


def test_updates_come_in_the_order_of_batches_and_the_newest_of_each_key_on_demand(tmp_path):
    put(tmp_path, 0, [{"who": "a", "n": 1, "_batch_id": 0}, {"who": "b", "n": 2, "_batch_id": 0}])
    put(tmp_path, 11, [{"who": "a", "n": 9, "_batch_id": 11}])
    put(tmp_path, 2, [{"who": "a", "n": 5, "_batch_id": 2}])
    counts = query(sink=sink(tmp_path))
    assert counts.results()["n"].to_pylist() == [1, 2, 5, 9]
    expected = [{"who": "a", "n": 9}, {"who": "b", "n": 2}]
    for newest in (counts.results(latest=True), counts.results(key=["who"])):
        assert sorted(newest.to_pylist(), key=lambda row: row["who"]) == expected
    whole = query("SELECT min(who) AS who, count(*) AS n FROM e", sink=sink(tmp_path))
    assert whole.results(latest=True).to_pylist() == [{"who": "a", "n": 9}]


@pytest.mark.parametrize(
    ("sql", "settings", "problem"),
    [
        ("SELECT count(*) AS n FROM e GROUP BY who", {}, "groups by who and does not select it, so nothing identifies"),
        ("SELECT who FROM e", {}, r"does not say which columns identify a result; name them, such as key=\['who'\]"),
        ("SELECT who, count(*) AS n FROM e GROUP BY who", {"partitionBy": ["who"]}, "does not say which columns"),
    ],
)
def test_what_identifies_a_result_is_asked_for_where_the_query_does_not_say(tmp_path, sql, settings, problem):
    put(tmp_path, 0, [{"who": "a", "n": 1, "_batch_id": 0}])
    with pytest.raises(millrace.MillraceError, match=problem):
        query(sql, sink=sink(tmp_path, **settings)).results(latest=True)


def test_text_files_of_different_types_are_one_table(tmp_path):
    (tmp_path / result_file(0, 0, "csv")).write_text("who,n\na,1\n")
    (tmp_path / result_file(1, 0, "csv")).write_text("who,n\nb,1.5\n")
    assert query(sink=sink(tmp_path, format="csv")).results()["n"].to_pylist() == [1.0, 1.5]
    (tmp_path / result_file(0, 0, "json")).write_text('{"who": "a"}\n')
    (tmp_path / result_file(1, 0, "json")).write_text('{"who": "b", "n": 2}\n')
    assert query(sink=sink(tmp_path, format="json")).results()["n"].to_pylist() == [None, 2]
    (tmp_path / result_file(2, 0, "csv")).write_text("who,n\nc,many\n")
    with pytest.raises(millrace.MillraceError, match=r"cannot be read: .*; give the sink format: parquet"):
        query(sink=sink(tmp_path, format="csv")).results()


def test_a_folder_above_the_results_may_have_any_name(tmp_path):
    put(tmp_path / "_work" / "out", 0, [{"who": "a", "n": 1}])
    assert query(sink=sink(tmp_path / "_work" / "out")).results(key="who").num_rows == 1


def test_what_a_run_has_staged_is_no_result(tmp_path):
    put(tmp_path / "_staging", 0, [{"n": 1}])
    assert query(sink=sink(tmp_path)).results().num_rows == 0


def test_columns_that_name_folders_are_columns_again(tmp_path):
    put(tmp_path / "day=2026-01-01", 0, [{"n": 1}])
    put(tmp_path / "day=2026-01-02", 0, [{"n": 2}])
    table = query("SELECT day, count(*) AS n FROM e GROUP BY day", sink=sink(tmp_path, partitionBy=["day"])).results()
    assert sorted(zip(table["day"].to_pylist(), table["n"].to_pylist(), strict=True)) == [
        ("2026-01-01", 1),
        ("2026-01-02", 2),
    ]


def test_a_key_that_results_lack_is_named(tmp_path):
    put(tmp_path, 0, [{"who": "a", "n": 1, "_batch_id": 0}])
    with pytest.raises(millrace.MillraceError, match="key: results have no column whom; write some of who, n"):
        query(sink=sink(tmp_path)).results(key=["whom"])


@pytest.mark.parametrize("other", [{"delta": {"path": "out", "key": ["who"]}}, {"files": {"path": "s3a://lake/out"}}])
def test_results_elsewhere_are_read_elsewhere(other):
    with pytest.raises(millrace.MillraceError, match="cannot be read from here; read them from there, or give"):
        query(sink=other, checkpoint={"uri": "file:///tmp/t"}).results()


def test_results_that_are_shown_are_those_of_a_run():
    with pytest.raises(millrace.MillraceError, match=r"are not kept after their run; call results\(\) of a run"):
        query().results()


def kept(**settings):
    return KeptResults(query(**settings).model, most_bytes=2_000)


def test_results_of_a_query_without_a_sink_are_kept_up_to_a_size():
    results = kept()
    spec = results.query.spec
    folder = Path(spec.sink.files.path)
    put(folder, 0, [{"who": "a"}])
    put(folder, 0, [{"who": "b"}], index=1)
    results.require_room(0)
    put(folder, 1, [{"who": "c" * 900}])
    with pytest.raises(millrace.MillraceError, match=r"spec.sink: the results of t are larger than 2,000 bytes; give"):
        results.require_room(1)
    assert spec.checkpoint.uri == f"file://{folder.parent}/checkpoint"
    del results
    assert not folder.parent.exists()


def test_a_checkpoint_that_the_query_names_is_kept_for_its_next_run():
    assert kept(checkpoint={"uri": "file:///tmp/t"}).query.spec.checkpoint.uri == "file:///tmp/t"


KEPT = """
import os, sys
import millrace
from millrace.results import KeptResults
source = {"files": {"path": "in", "format": "csv"}, "schema": "who STRING"}
kept = KeptResults(millrace.StreamQuery("t", sources={"e": source}, query="SELECT who FROM e").model)
(kept._folder / "results").mkdir()
if sys.argv[1:]:
    os.kill(os.getpid(), 9)
print(*os.listdir(os.environ["TMPDIR"]))
"""


def test_results_that_a_killed_process_left_are_removed_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert subprocess.run([sys.executable, "-c", KEPT, "killed"], check=False).returncode == -9
    (left,) = tmp_path.iterdir()
    listed = subprocess.run([sys.executable, "-c", KEPT], check=True, capture_output=True, text=True).stdout.split()
    assert len(listed) == 1
    assert left.name not in listed
    assert list(tmp_path.iterdir()) == []


FORKED = """
import os, sys
import millrace
from millrace.results import KeptResults
source = {"files": {"path": "in", "format": "csv"}, "schema": "who STRING"}
kept = KeptResults(millrace.StreamQuery("t", sources={"e": source}, query="SELECT who FROM e").model)
child = os.fork()
if not child:
    del kept
    sys.exit()
os.waitpid(child, 0)
print(kept._folder.is_dir())
"""


def test_a_forked_child_leaves_results_to_its_parent(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    found = subprocess.run([sys.executable, "-c", FORKED], check=True, capture_output=True, text=True).stdout
    assert found == "True\n"
    assert list(tmp_path.iterdir()) == []
