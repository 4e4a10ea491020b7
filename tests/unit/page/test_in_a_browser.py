"""The page in Chromium: what its script does, and how it lays itself out."""

import time
from contextlib import closing

import pytest
from prometheus_client import CollectorRegistry

from lab.browser import Browser
from millrace_jobs.page.live_page import FRESH_SECONDS, LivePage
from millrace_jobs.page.replay import replayed
from millrace_jobs.page.report import render_report
from millrace_support.http_server import HttpServer

from .browser_checks import CONTRAST, OVERFLOW, VERDICT
from .recorded import an_incident
from .runs import a_late_batch, a_skewed_batch, alive, candidate, facts, history, latencies


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser.start(tmp_path_factory.mktemp("browser")) as started:
        yield started


@pytest.fixture
def page(browser):
    """A run of skewed batches that keep up; its history, and its server."""
    kept, clock = history(*[a_skewed_batch(latencies=latencies(1, 2))] * 20)
    each = {name: candidate(name, 0.8) for name in ("pkg", "hash")}
    kept.predicted(each)
    kept.started(chooses=True, plan_origin="", output="")
    known = facts(key=("k",), lookups="http://127.0.0.1:1/table")
    server = HttpServer(CollectorRegistry(), alive, alive, pages=LivePage(kept, known, clock).paths)
    server.start()
    browser.requests.clear()
    browser.complaints.clear()
    with closing(server):
        yield kept, clock, server


def grow_late(kept, clock):
    for number in range(14):
        clock.now += 2
        kept.batch(a_late_batch(waiting=number * 4000))
    clock.now += FRESH_SECONDS


def test_the_page_follows_the_run_and_asks_nobody_else(browser, page):
    kept, clock, server = page
    browser.open(f"{server.url}/")
    assert browser.evaluate(VERDICT) == "Keeping up"
    browser.evaluate("document.getElementById('batches-summary').click()")
    browser.evaluate("document.getElementById('batches-summary').focus()")
    grow_late(kept, clock)
    browser.wait_until(f"{VERDICT} === 'Falling behind'")
    assert browser.evaluate("document.getElementById('announce').textContent") == "Falling behind"
    assert browser.evaluate("document.title") == "! fares: falling behind"
    assert browser.evaluate("document.getElementById('batches').open")  # what a reader has opened stays open
    assert browser.evaluate("document.activeElement.id") == "batches-summary"
    asked = {url for url in browser.requests if not url.startswith("data:")}
    assert asked == {f"{server.url}/{name}" for name in ("", "page.css", "page.js")}
    assert browser.complaints == []


def test_the_page_says_that_its_run_has_ended(browser, page):
    *_, server = page
    browser.open(f"{server.url}/")
    server.close()
    browser.wait_until("document.getElementById('updates').textContent.startsWith('No answer since')")
    headings = browser.evaluate("[...document.querySelectorAll('main h2')].map((each) => each.textContent)")
    assert "Keeping up as of 12:00:40 UTC" in headings
    assert [each for each in headings if not each.endswith(" as of 12:00:40 UTC")] == ["Look up rows"]


def test_the_same_verdict_after_answers_that_were_missing_is_not_announced(browser, page):
    *_, server = page
    browser.open(f"{server.url}/")
    browser.evaluate("date('12:00:40')")  # as when no answer comes
    browser.evaluate("update()")
    assert browser.evaluate(VERDICT) == "Keeping up"
    assert browser.evaluate("document.getElementById('announce').textContent") == ""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1120, 390])
def test_texts_have_contrast_and_fit_the_window(browser, page, width, dark):
    kept, clock, server = page
    browser.size(width, 844, dark=dark)
    for _ in range(2):
        browser.open(f"{server.url}/")
        assert browser.evaluate(OVERFLOW) == 0
        assert browser.evaluate(CONTRAST) == []
        grow_late(kept, clock)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1120, 390])
def test_a_report_opens_as_a_file_and_is_read_in_any_window(browser, tmp_path, width, dark):
    *_, lines = an_incident()
    file = tmp_path / "report.html"
    file.write_bytes(render_report(replayed(lines)))
    browser.requests.clear()
    browser.complaints.clear()
    browser.size(width, 844, dark=dark)
    browser.open(file.as_uri())
    assert browser.evaluate(VERDICT) == "Keeping up"
    assert browser.evaluate(OVERFLOW) == 0
    assert browser.evaluate(CONTRAST) == []
    assert {url for url in browser.requests if not url.startswith("data:")} == {file.as_uri()}
    assert browser.complaints == []  # the style fits the policy


def test_a_page_that_is_open_shows_why_its_run_has_failed(browser):
    kept, _ = history(a_skewed_batch())
    live = LivePage(kept, facts(), time.time)
    server = HttpServer(CollectorRegistry(), alive, alive, pages=live.paths)
    server.start()
    browser.open(f"{server.url}/")
    kept.failed(ValueError("the topic is gone"))
    live.wait_until_seen(60)
    server.close()
    browser.wait_until("document.getElementById('updates').textContent.startsWith('No answer since')")
    assert browser.evaluate(VERDICT) == "Failed"


def test_all_that_can_be_operated_is_reached_by_the_tabulator_key(browser, page):
    *_, server = page
    browser.open(f"{server.url}/")
    reached = []
    for _ in range(20):
        browser.press("Tab")
        reached.append(browser.evaluate("document.activeElement.id || document.activeElement.tagName"))
    assert {"batches-summary", "loads-summary", "key", "SELECT", "BUTTON"} <= set(reached)


def test_without_a_script_the_figures_are_there(browser, page):
    *_, server = page
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(f"{server.url}/")
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
    assert browser.evaluate(VERDICT) == "Keeping up"
    assert "Reload the page" in browser.evaluate("document.getElementById('updates').textContent")
