"""The notebook of the docs that starts Spark runs from top to bottom, and shows what comes out."""

from __future__ import annotations

from pathlib import Path

import pytest

from notebooks import assert_shows_what_comes_out, executed, outputs


@pytest.mark.spark
def test_the_first_query_over_a_data_frame_runs_in_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = executed("first-query.ipynb", tmp_path, monkeypatch)
    assert_shows_what_comes_out(ran, "first-query.ipynb")
    shown = outputs(ran)
    assert shown["summary"] == ["(20000, 96)"]
    [progress] = next(cell for cell in ran.cells if cell.id == "run").outputs
    assert progress.data["text/html"].startswith("<b>fares-by-zone</b> ")
    assert "emit: OnWindowClose" in (tmp_path / "fares-by-zone.yaml").read_text()
