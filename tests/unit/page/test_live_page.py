import http.client
from contextlib import closing, contextmanager
from threading import Thread

import pytest
from prometheus_client import CollectorRegistry

from builders import a_batch
from millrace_jobs.page.live_page import LivePage
from millrace_support.http_server import HttpServer

from .runs import alive, facts, history


@contextmanager
def served(page, host="127.0.0.1"):
    server = HttpServer(CollectorRegistry(), alive, alive, host, pages=page.paths)
    server.start()
    with closing(server):
        yield server


def ask(server, path="/", **headers):
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)) as connection:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()


@pytest.fixture
def run():
    return history(*[a_batch()] * 3)


def test_the_page_is_html_that_loads_nothing_from_elsewhere(run):
    kept, clock = run
    with served(LivePage(kept, facts(), clock)) as server:
        status, headers, text = ask(server)
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; style-src 'self'; script-src 'self'")
    assert (headers["Cache-Control"], headers["X-Content-Type-Options"]) == ("no-store", "nosniff")
    assert "Keeping up" in text


def test_page_style_and_script_have_less_than_200_kb_together(run):
    kept, clock = run
    with served(LivePage(kept, facts(), clock)) as server:
        answers = [ask(server, path) for path in ("/", "/page.css", "/page.js")]
    assert [headers["Content-Type"].split(";")[0] for _, headers, _ in answers] == [
        "text/html", "text/css", "text/javascript",
    ]  # fmt: skip
    assert sum(len(text) for *_, text in answers) < 100_000


def test_any_number_of_clients_costs_one_rendering_a_second(run):
    kept, clock = run
    rendered = []
    page = LivePage(kept, facts(failing=lambda: rendered.append(1)), clock)
    with served(page) as server:
        for _ in range(5):
            ask(server)
        assert len(rendered) == 1
        clock.now += 1
        ask(server)
        assert len(rendered) == 2
        clock.now -= 3600  # the clock was set back
        ask(server)
        assert len(rendered) == 3


def test_a_batch_renders_nothing_until_a_client_asks(run):
    kept, clock = run
    rendered = []
    LivePage(kept, facts(failing=lambda: rendered.append(1)), clock)
    kept.batch(a_batch())
    assert rendered == []


def test_a_page_of_another_site_cannot_read_it_by_a_name_of_its_own(run):
    kept, clock = run
    with served(LivePage(kept, facts(), clock)) as server:
        assert ask(server, Host="evil.example")[::2] == (
            421,
            "this host name is not local: write 127.0.0.1 or localhost in the URL\n",
        )
        assert ask(server, Host=f"localhost:{server.port}")[0] == 200
        assert ask(server, "/healthz", Host="evil.example")[0] == 200


def test_a_page_that_cannot_be_made_takes_nothing_else_with_it(run, caplog):
    def broken():
        raise ZeroDivisionError

    kept, clock = run
    with served(LivePage(kept, facts(failing=broken), clock)) as server:
        assert ask(server)[::2] == (500, "the page cannot be rendered: ZeroDivisionError\n")
        assert ask(server, "/healthz")[0] == 200
        assert ask(server, "/elsewhere")[2] == "there are the page /, /metrics, /healthz and /readyz\n"
    assert "the page cannot be rendered" in caplog.text


def test_a_look_up_that_nothing_answers_is_a_page_with_the_reason(run):
    kept, clock = run
    with served(LivePage(kept, facts(), clock)) as gone:
        url = f"{gone.url}/table"
    known = facts(key=("cell",), lookups=url)
    with served(LivePage(kept, known, clock)) as server:
        status, _, text = ask(server, "/?key=a%3Cb&by=prefix")
    assert status == 200
    assert 'role="alert"' in text
    assert 'value="a&lt;b"' in text or 'value="a<b"' in text


def test_a_run_that_nobody_watches_ends_at_once(run):
    kept, clock = run
    LivePage(kept, facts(), clock).wait_until_seen(1e9)


def test_a_client_that_has_the_end_is_not_waited_for(run):
    kept, clock = run
    page = LivePage(kept, facts(), clock)
    with served(page) as server:
        ask(server)
        kept.ended("finished")
        clock.now += 1
        assert "Finished" in ask(server)[2]
        page.wait_until_seen(1e9)


def test_a_page_from_before_the_end_does_not_count_as_one_that_shows_it(run):
    kept, clock = run
    page = LivePage(kept, facts(), clock)
    with served(page) as server:
        ask(server)
        kept.ended("finished")
        ask(server)  # the page of the same second
        waiting = Thread(target=page.wait_until_seen, args=(60,))
        waiting.start()
        while "Finished" not in ask(server)[2]:
            assert waiting.is_alive()
        waiting.join(30)
        assert not waiting.is_alive()


def test_the_start_of_a_run_says_what_it_does():
    kept, clock = history()
    kept.step("starting Spark")
    clock.now += 3
    with served(LivePage(kept, facts(), clock)) as server:
        assert "Starting Spark, 3 s after the start." in ask(server)[2]
