"""docs/partitioning.md against the code: every claim that is checked, every algorithm, every plot."""

import re
from pathlib import Path

import pytest
from bench.papers.rerun import CLAIMS

from millrace_jobs.partitioners import registry

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "partitioning.md").read_text()
ROWS = dict(re.findall(r"^\| (\d{3}\.\d+) \| (.*) \|$", PAGE, re.M))
PLOTS = re.findall(r"\]\((img/partitioning/[\w-]+\.svg)\)", PAGE)


def test_the_table_has_one_row_for_each_claim():
    assert list(ROWS) == [claim.name for claim in CLAIMS]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_a_row_gives_the_paper_s_figure_ours_and_a_verdict(claim):
    says, ours, verdict = (cell.strip() for cell in ROWS[claim.name].split(" | "))
    assert says == f"{claim.says} ({claim.place})"
    assert re.search(r"\d", ours)
    word, _, because = verdict.partition("**. ")
    assert word.strip("*") in ("agrees", "in part", "disagrees")
    assert because == claim.because
    assert claim.because or word == "**agrees**", "a claim that does not hold here needs a reason"


@pytest.mark.parametrize("algorithm", [name for name in registry.ALGORITHMS if registry.is_routed(name)])
def test_the_page_describes_every_algorithm_with_its_parameters(algorithm):
    assert f"`{algorithm}`" in PAGE
    for parameter in registry.parameters_of(algorithm):
        assert f"`{parameter}`" in PAGE


def test_the_page_shows_every_plot_and_all_are_small():
    files = {f"img/partitioning/{path.name}": path.stat().st_size for path in (DOCS / "img/partitioning").iterdir()}
    assert set(files) == set(PLOTS)
    assert all(size < 60_000 for size in files.values())
