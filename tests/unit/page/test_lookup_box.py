"""The box of the page that looks rows up, with the process that answers the look-ups of a run."""

import pytest

from builders import a_batch
from millrace_jobs.page.lookup_box import looked_up
from millrace_jobs.page.rendering import render
from unit.lookups.tables import ROUTE, filled, served, text

from .html_pages import ParsedPage
from .runs import facts, history, view_of


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    folder = tmp_path_factory.mktemp("table")
    rows = {
        text(origin=origin, number=number): text(origin=origin, number=number, delay=delay)
        for origin, number, delay in (("EWR", 5, None), ("JFK", 10, "<b>late</b>"), ("JFK", 11, "-"))
    }
    store = filled(folder, rows, batch=1204)
    with served(folder, ROUTE, "flights") as process:
        yield process.url
    store.close()


@pytest.fixture
def shown(url):
    """The text of the box for the query part of the page's URL."""

    def box(parameters):
        known = facts(key=("origin", "number"), lookups=url)
        page = render(view_of(*history(a_batch()), known), looked_up(parameters, url))
        return ParsedPage(page.decode()).texts["lookup"]

    return box


def test_the_row_of_a_key_is_shown(shown):
    assert "1 row as of batch 1204originnumberdelayJFK10<b>late</b>" in shown("key=JFK%2C10")


def test_rows_that_begin_with_a_value_are_shown(shown):
    text = shown("key=JFK&by=prefix")
    assert "2 rows as of batch 1204" in text
    assert "EWR" not in text


def test_without_a_key_the_first_rows_are_shown(shown):
    assert "3 rows as of batch 1204" in shown("key=")


def test_a_key_without_a_row_is_said(shown):
    assert "No row has the key LGA,1, as of batch 1204." in shown("key=LGA%2C1")


def test_a_key_that_is_none_is_refused_with_what_to_write(shown):
    assert "origin" in shown("key=JFK")


def test_no_look_up_is_made_unless_a_key_is_given(url):
    assert looked_up("", url) is None
    assert looked_up("by=prefix", url) is None
