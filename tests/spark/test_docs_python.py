"""docs/python.md: its blocks, run in their order as one program; those that begin with a file's name are that file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

PAGE = (Path(__file__).parents[2] / "docs/python.md").read_text("utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
FILE = re.compile(r"# (\w+\.py)\n")


@pytest.mark.spark
def test_the_page_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    names: dict[str, Any] = {}
    after: list[dict[str, Any]] = []
    for number, block in enumerate(BLOCKS):
        if file := FILE.match(block):
            Path(file[1]).write_text(block)
        else:
            exec(compile(block, f"docs/python.md, block {number + 1}", "exec"), names)
        after.append(dict(names))

    finished = next(each["run"] for each in after if "run" in each)
    assert (finished.status, finished.summary.rows, finished.summary.results) == ("finished", 4, 3)
    assert isinstance(finished.results(), pa.Table)
    assert finished.metrics_url.startswith("http://127.0.0.1:")
    assert sorted(finished.results()["trips"].to_pylist()) == [1, 1, 2]
    stopped = names["run"]
    assert (stopped.status, stopped.summary.rows, stopped.summary.results) == ("drained", 4, 3)
    batch = next(batch for batch in stopped.progress if batch.rows)
    assert (batch.algorithm, sum(batch.worker_rows), batch.interval) == ("pkg", 4, 0.5)
    assert "<table>" in stopped._repr_html_()
    assert [row["trips"] for row in names["live"].results(latest=True).to_pylist() if row["cell"] == "south"] == [1]
    assert len(names["ids"]) == len(names["keys"])
    printed = capsys.readouterr().out
    assert "spec.batchInterval" in printed
    assert "{'longest': 'northwest'}" in printed
