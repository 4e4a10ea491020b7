"""docs/partitioning.md against the code: every claim and its verdict, every algorithm, every plot."""

import re
from pathlib import Path

import pytest

from millrace_jobs.partitioners import registry
from millrace_research.papers.__main__ import BEGIN, COOPERATION, END, RECORDED
from millrace_research.papers.cooperation import cooperation_table
from millrace_research.papers.figures import PaperFigures
from millrace_research.papers.rerun import CLAIMS
from millrace_research.papers.streams import FETCHED, STANDS_FOR
from millrace_research.papers.verdicts import Verdict, bounds_cell, table, verdict_text

DOCS = Path(__file__).parents[4] / "docs"
PAGE = (DOCS / "partitioning.md").read_text()
ROWS = dict(re.findall(r"^\| (\d{3}\.\d+) \| (.*) \|$", PAGE, re.M))
PLOTS = re.findall(r"\]\((img/partitioning/[\w-]+\.svg)\)", PAGE)
FIGURES = PaperFigures.read(RECORDED)


def between(begin, end):
    return PAGE.partition(begin)[2].partition(end)[0].strip()


def test_the_table_has_one_row_for_each_claim():
    assert list(ROWS) == [claim.name for claim in CLAIMS]
    assert len(set(ROWS)) == len(CLAIMS)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_a_row_gives_the_paper_s_figure_what_was_run_its_bound_ours_and_the_verdict_of_the_recorded_figures(claim):
    says, ran, bound, ours, verdict = (cell.strip() for cell in ROWS[claim.name].split(" | "))
    assert says == f"{claim.says} ({claim.place})"
    assert ran == claim.ran
    assert bound == bounds_cell(claim)
    assert re.search(r"\d", ours)
    found = verdict_text(claim, FIGURES)
    assert verdict == (f"{found}. {claim.because}" if claim.because else found)
    verdicts = set(claim.verdicts(FIGURES).values())
    assert claim.because or verdicts == {Verdict.AGREES}, "a claim that does not hold here needs a reason"


def test_the_tables_are_those_of_the_recorded_figures():
    assert between(BEGIN, END) == table(CLAIMS, FIGURES)
    assert between(*COOPERATION) == cooperation_table(FIGURES)


@pytest.mark.parametrize("stream", STANDS_FOR)
def test_the_page_has_every_stream(stream):
    assert f"\n| {stream} |" in PAGE


@pytest.mark.parametrize("command", FETCHED.values())
def test_the_page_has_the_command_that_fetches_a_stream(command):
    assert command in PAGE


@pytest.mark.parametrize("verdict", Verdict)
def test_the_page_defines_every_verdict(verdict):
    assert f"*{verdict}*" in PAGE


@pytest.mark.parametrize("algorithm", [name for name in registry.ALGORITHMS if registry.is_routed(name)])
def test_the_page_describes_every_algorithm_with_its_parameters(algorithm):
    assert f"`{algorithm}`" in PAGE
    for parameter in registry.parameters_of(algorithm):
        assert f"`{parameter}`" in PAGE


def test_the_page_shows_every_plot_and_all_are_small():
    files = {f"img/partitioning/{path.name}": path.stat().st_size for path in (DOCS / "img/partitioning").iterdir()}
    assert set(files) == set(PLOTS)
    assert all(size < 60_000 for size in files.values())
