"""The notebooks of the docs that need no Java run from top to bottom, and show what comes out."""

from __future__ import annotations

import re

import pytest

from notebooks import GALLERY, assert_shows_what_comes_out, executed, outputs, read

NAMES = sorted(file.name for file in GALLERY.glob("*.ipynb"))


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_has_the_outputs_of_one_run_and_is_small(name):
    cells = [cell for cell in read(name).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert (GALLERY / name).stat().st_size < 120_000


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_shows_no_warning_and_no_path_of_a_machine(name):
    shown = str(outputs(read(name)))
    assert re.findall(r"stderr: .*|Warning|/(?:tmp|home|root|work|usr)/", shown) == []


@pytest.mark.parametrize("name", NAMES)
def test_the_gallery_lists_every_notebook(name):
    assert f"]({name})" in (GALLERY / "README.md").read_text(encoding="utf-8")


def test_the_notebook_on_aggregators_finds_the_wrong_one_and_accepts_the_other(tmp_path, monkeypatch):
    ran = executed("aggregator.ipynb", tmp_path, monkeypatch)
    assert_shows_what_comes_out(ran, "aggregator.ipynb")
    shown = outputs(ran)
    assert 'breaks the law "merge is associative"' in shown["check"][0]
    assert shown["checked"] == ["{'mean': 13.0}"]


def test_the_notebook_on_capacity_says_how_many_tasks_a_rate_takes(tmp_path, monkeypatch):
    ran = executed("capacity.ipynb", tmp_path, monkeypatch)
    assert_shows_what_comes_out(ran, "capacity.ipynb")
    assert re.search(r"^1000000 +1 +4$", outputs(ran)["rates"][0], re.MULTILINE)


def test_the_notebook_on_partitioners_finds_one_with_even_loads_and_few_partial_results(tmp_path, monkeypatch):
    ran = executed("partitioners.ipynb", tmp_path, monkeypatch)
    assert_shows_what_comes_out(ran, "partitioners.ipynb")
    shown = outputs(ran)
    assert shown["hash"][0].endswith("2.08)")
    assert shown["choice"][0].splitlines()[2].startswith("prompt")
