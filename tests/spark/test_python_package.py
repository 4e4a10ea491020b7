"""``millrace`` in Python: how runs that never get to Spark end; ``test_docs_python`` has those that do."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import millrace

from .cli import PATIENCE, Running

pytestmark = pytest.mark.spark

SOURCE = {
    "files": {"path": "in", "format": "csv"},
    "schema": "at TIMESTAMP, who STRING, n INT",
    "watermark": {"column": "at", "delay": "10s"},
}
SQL = "SELECT window.start AS since, who, sum(n) AS total FROM events GROUP BY window(at, '1 minute'), who"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with one file of input."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "first.csv").write_text("at,who,n\n2024-01-01T00:00:01Z,a,1\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_that_cannot_begin_raises_the_problems_of_the_query() -> None:
    source = SOURCE | {"files": {"path": "missing", "format": "csv"}}
    query = millrace.StreamQuery("totals", sources={"events": source}, query=SQL)
    with pytest.raises(millrace.MillraceError) as of_check:
        query.validate()
    with pytest.raises(millrace.MillraceError) as of_run:
        query.run(progress=False)
    for caught in (of_check, of_run):
        assert "source events: no file matches this path; write a file, a folder or a glob pattern" in str(caught.value)


def test_a_query_that_is_stopped_while_it_starts_has_drained() -> None:
    run = millrace.StreamQuery("totals", sources={"events": SOURCE}, query=SQL).start().stop()
    assert (run.status, run.progress, run.results().num_rows) == ("drained", (), 0)


def test_warnings_of_a_valid_query_are_returned() -> None:
    query = millrace.StreamQuery("totals", sources={"events": SOURCE}, query=SQL, batch_interval="100ms")
    assert [warning.field for warning in query.validate()] == ["spec.batchInterval"]


PROGRAM = f"""
import os
import millrace
run = millrace.StreamQuery("totals", sources={{"events": {SOURCE}}}, query={SQL!r}).start()
print(run._process.handle.pid, flush=True)
os.kill(os.getpid(), 9)
"""


def test_a_run_ends_with_its_program_even_if_that_is_killed(folder: Path) -> None:
    with Running([sys.executable, "-c", PROGRAM], folder, terminal=False) as program:
        assert program.process.wait(PATIENCE) == -9
        program.assert_gone()


INTERRUPTED = f"""
import millrace
run = millrace.StreamQuery("totals", sources={{"events": {SOURCE}}}, query={SQL!r}).run(once=False)
print("it", run.status)
"""


def test_ctrl_c_ends_a_run_that_goes_on_which_is_then_returned(folder: Path) -> None:
    with Running([sys.executable, "-c", INTERRUPTED], folder, terminal=True) as program:
        program.wait_for("totals .*starting")
        program.press_ctrl_c()
        ended = program.finish()
        program.assert_gone()
    assert ended.status == 0, ended.out
    assert ended.out.rstrip().endswith("it drained")


def test_a_process_that_dies_is_reported_with_the_last_that_it_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["broken", os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("FORCE_COLOR", "1")  # as in a notebook
    Path("broken/rich").mkdir(parents=True)
    Path("broken/rich/__init__.py").write_text(
        "import os\nraise SystemExit(os.environ.get('FORCE_COLOR', 'no rich here'))"
    )
    query = millrace.StreamQuery("totals", sources={"events": SOURCE}, query=SQL)
    with pytest.raises(millrace.MillraceError, match="ended with status 1: no rich here; run it again"):
        query.run(progress=False)
