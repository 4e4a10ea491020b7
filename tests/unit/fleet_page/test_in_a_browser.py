"""The page of the fleet in Chromium: logging in, following, and how it lays itself out."""

from contextlib import ExitStack

import pytest

from lab.browser import Browser
from millrace_operator.page.access import Access
from unit.page.browser_checks import CONTRAST, OVERFLOW, VERDICT

from .driver_proxy import proxy
from .fleets import FAILING, LATE, ReviewsByList, a_large_fleet, a_mixed_fleet, cache_of, pages, pages_of, query, served

HELLO = b"""<!doctype html><title>fares</title><link rel="stylesheet" href="page.css"><h1 id="run">Keeping up</h1>
<script>document.title = "run"</script><form action="/logout" method="post"><button id="b">Out</button></form>
<a id="top" href="/" target="_top">Fleet</a>"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser.start(tmp_path_factory.mktemp("browser")) as started:
        yield started


@pytest.fixture
def fleet(browser):
    """A function that serves pages and logs the browser in."""
    with ExitStack() as stack:

        def open_(fleet_pages):
            server = stack.enter_context(served(fleet_pages))
            browser.open(f"{server.url}/")
            browser.evaluate("document.getElementById('token').value = 'admin'")
            browser.evaluate("document.querySelector('form').requestSubmit()")
            browser.wait_until("document.readyState === 'complete' && document.getElementById('queries') !== null")
            browser.requests.clear()
            browser.complaints.clear()
            return server

        yield open_


def test_a_reader_logs_in_follows_the_fleet_and_asks_nobody_else(browser, fleet):
    cache = cache_of([query(name="fares"), query(name="trips")])
    server = fleet(pages_of([cache], Access(ReviewsByList(admin=None))))
    browser.open(f"{server.url}/")
    assert browser.evaluate(VERDICT) == "All 2 queries are well"
    assert browser.evaluate("document.cookie") == ""  # no script reads the session
    browser.evaluate("document.getElementById('query-cabs-fares').focus()")
    cache.query_seen(query(name="trips", reported=FAILING, version=2))
    browser.wait_until(f"{VERDICT} === '1 of 2 queries needs attention'")
    assert browser.evaluate("document.getElementById('announce').textContent") == "1 of 2 queries needs attention"
    assert browser.evaluate("document.querySelector('.fleet a').id") == "query-cabs-trips"
    assert browser.evaluate("document.activeElement.id") == "query-cabs-fares"
    browser.evaluate("document.getElementById('query-cabs-trips').click()")
    browser.wait_until("document.readyState === 'complete' && location.pathname === '/queries/cabs/trips'")
    assert browser.evaluate(VERDICT) == "Failing and starting again"
    asked = {url.removeprefix(server.url) for url in browser.requests if not url.startswith("data:")}
    assert asked == {"/", "/page.css", "/page.js", "/queries/cabs/trips"}
    assert browser.complaints == []


def test_a_page_of_the_table_and_a_search_stay_what_they_are(browser, fleet):
    server = fleet(pages(a_large_fleet(), ReviewsByList(admin=None)))
    browser.open(f"{server.url}/?find=team-7&page=1")
    browser.evaluate("document.getElementById('find').value = 'typing'")
    browser.evaluate("update()")
    assert browser.evaluate("document.getElementById('find').value") == "typing"
    assert browser.evaluate("document.querySelectorAll('.fleet tbody tr').length") == 50
    assert f"{server.url}/?find=team-7" in browser.requests


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1120, 390])
def test_texts_have_contrast_and_fit_the_window(browser, fleet, width, dark):
    browser.size(width, 844, dark=dark)
    server = fleet(pages([*a_mixed_fleet(), query(name="x" * 63, reported=LATE)], ReviewsByList(admin=None)))
    for path in ("/", "/queries/cabs/trips-by-cell", "/queries/cabs/tips-by-hour", "/queries/cabs/none", "/nowhere"):
        browser.open(f"{server.url}{path}")
        assert browser.evaluate(OVERFLOW) == 0
        assert browser.evaluate(CONTRAST) == []
    browser.evaluate("fetch('/logout', {method: 'POST'}).then(() => null)")
    browser.open(f"{server.url}/")
    browser.wait_until("document.activeElement.id === 'token'")
    assert (browser.evaluate(OVERFLOW), browser.evaluate(CONTRAST)) == (0, [])


def test_all_that_can_be_operated_is_reached_by_the_tabulator_key(browser, fleet):
    server = fleet(pages([*a_mixed_fleet(), *a_large_fleet(120)], ReviewsByList(admin=None)))
    browser.open(f"{server.url}/")
    reached = []
    for _ in range(8):
        browser.press("Tab")
        reached.append(browser.evaluate("document.activeElement.id || document.activeElement.tagName"))
    assert reached[1:6] == ["BUTTON", "find", "BUTTON", "query-cabs-trips-by-cell", "query-cabs-tips-by-hour"]
    browser.open(f"{server.url}/queries/cabs/tips-by-hour")
    reached = []
    for _ in range(8):
        browser.press("Tab")
        reached.append(browser.evaluate("document.activeElement.id"))
    assert {"to-fleet", "sql-summary"} <= set(reached)


def test_without_a_script_a_reader_logs_in_and_sees_the_fleet(browser, fleet):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        server = fleet(pages(a_mixed_fleet(), ReviewsByList(admin=None)))
        browser.open(f"{server.url}/")
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
    assert browser.evaluate(VERDICT) == "3 of 8 queries need attention"
    assert "Reload the page" in browser.evaluate("document.getElementById('updates').textContent")


def test_the_page_of_a_driver_runs_nothing_in_the_readers_session(browser, fleet):
    with proxy(body=HELLO) as (drivers, _):
        server = fleet(pages([query()], ReviewsByList(admin=None), drivers=drivers))
        browser.open(f"{server.url}/queries/cabs/fares/live")
        assert "written by the code of cabs/fares" in browser.evaluate("document.getElementById('foreign').textContent")
        assert browser.evaluate("document.querySelector('iframe').contentDocument") is None  # of another origin
        with browser.frame():
            assert browser.evaluate("document.getElementById('run').textContent") == "Keeping up"
            assert browser.evaluate("getComputedStyle(document.getElementById('run')).margin") == "0px"  # has its style
            assert browser.evaluate("document.title") == "fares"
            browser.evaluate("document.getElementById('b').click()")
            browser.evaluate("document.getElementById('top').click()")
        assert browser.evaluate("location.pathname") == "/queries/cabs/fares/live"
        assert (browser.evaluate(OVERFLOW), browser.evaluate(CONTRAST)) == (0, [])
        browser.open(f"{server.url}/queries/cabs/fares/driver")  # as a link in a mail would
        assert "only shown in a frame" in browser.evaluate("document.body.textContent")
    browser.open(f"{server.url}/")
    assert browser.evaluate(VERDICT) == "The only query is well"
    assert f"{server.url}/logout" not in browser.requests
