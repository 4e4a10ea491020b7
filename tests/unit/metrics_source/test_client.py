"""The client at servers that do what a real Prometheus does not, or not at will; see also ``tests/prometheus``."""

import base64
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from millrace_operator.metrics_source import client
from millrace_operator.metrics_source.client import Prometheus, PrometheusError
from millrace_operator.metrics_source.result import Sample, Series
from millrace_operator.metrics_source.settings import PrometheusSettings

from .servers import answer, serving

TWO = (Series({}, (Sample(1.5, 2.0),)),)


def at(url, **settings):
    return Prometheus(PrometheusSettings(url, **settings))


def test_queries_are_forms_below_the_prefix():
    with serving() as server:
        prometheus = at(f"{server.url}/team-a/", timeout_seconds=2.5)
        assert prometheus.instant('a{b="&=+"}') == TWO
        assert prometheus.instant("b", 12.3456) == TWO
    assert [(request.path, request.form) for request in server.requests] == [
        ("/team-a/api/v1/query", {"query": 'a{b="&=+"}', "timeout": "2500ms"}),
        ("/team-a/api/v1/query", {"query": "b", "time": "12.346", "timeout": "2500ms"}),
    ]
    assert not any("Authorization" in request.headers for request in server.requests)


def test_a_connection_is_used_again():
    with serving() as server:
        prometheus = at(server.url)
        for _ in range(5):
            prometheus.instant("a")
    assert (len(server.requests), server.connections) == (5, 1)


def echo(handler):
    """A scalar at the time that was asked for."""
    asked = handler.noted.form["time"].encode()
    answer(handler, b'{"status":"success","data":{"resultType":"scalar","result":[%s,"2"]}}' % asked)


def test_threads_share_a_client():
    with serving(echo) as server, ThreadPoolExecutor(8) as threads:
        prometheus = at(server.url)
        found = list(threads.map(lambda number: prometheus.instant("a", number)[0].samples[0].time, range(100)))
    assert len(server.requests) == 100
    assert found == list(range(100))


def test_a_token_is_read_again_for_each_request(tmp_path):
    token = tmp_path / "token"
    with serving() as server:
        prometheus = at(server.url, token_file=token)
        for text in ("first", "second\n"):
            token.write_text(text)
            prometheus.instant("a")
    assert [request.headers["Authorization"] for request in server.requests] == ["Bearer first", "Bearer second"]


def test_a_password_is_read_again_for_each_request(tmp_path):
    password = tmp_path / "password"
    with serving() as server:
        prometheus = at(server.url, user="ann", password_file=password)
        for text in ("first", "sécond: \n"):
            password.write_text(text, encoding="utf-8")
            prometheus.instant("a")
    sent = [request.headers["Authorization"].removeprefix("Basic ") for request in server.requests]
    assert [base64.b64decode(text).decode() for text in sent] == ["ann:first", "ann:sécond: "]


@pytest.mark.parametrize(
    "content", [None, b"", b"\n", b"two words", b"hidden\r\nX: y", b"hidden\xff", "hiddén".encode()]
)
def test_a_token_that_cannot_be_sent_is_not_told(tmp_path, content):
    token = tmp_path / "token"
    if content is not None:
        token.write_bytes(content)
    with (
        serving() as server,
        pytest.raises(PrometheusError, match="token: the credentials file for Prometheus") as error,
    ):
        at(server.url, token_file=token).instant("a")
    assert "hidd" not in str(error.value)
    assert server.requests == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_told_and_not_followed(tmp_path, status):
    (tmp_path / "token").write_text("hidden")
    with serving() as other, serving() as server:
        place = other.url.replace("//", "//user:secret@") + "/login?state=secret"
        server.respond = lambda handler: answer(handler, b"", status, Location=place)
        with pytest.raises(PrometheusError, match=f"redirects to {other.url}/login, and that is not followed") as error:
            at(server.url, token_file=tmp_path / "token").instant("a")
    assert other.requests == []
    assert "secret" not in str(error.value)
    assert "hidden" not in str(error.value)


def test_an_answer_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(client, "MAX_ANSWER", 1 << 20)

    def endless(handler):
        handler.send_response(200)
        handler.send_header("Connection", "close")
        handler.end_headers()
        for _ in range(100):
            handler.wfile.write(b" " * (1 << 16))

    with serving(endless) as server, pytest.raises(PrometheusError, match="an answer of more than 1 MiB; check that"):
        at(server.url).instant("a")


def test_an_answer_that_never_ends_is_given_up(monkeypatch):
    monkeypatch.setattr(client, "_SPARE_SECONDS", 0.2)

    def dripping(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", "1000000")
        handler.end_headers()
        while True:
            handler.wfile.write(b" ")
            time.sleep(0.01)

    with (
        serving(dripping) as server,
        pytest.raises(PrometheusError, match=r"did not end its answer within 0\.3 s|timed out"),
    ):
        at(server.url, timeout_seconds=0.1).instant("a")


def test_a_server_that_does_not_answer_is_given_up(monkeypatch):
    monkeypatch.setattr(client, "_SPARE_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(PrometheusError, match=r"does not answer: .*timed out"):
            at(url, timeout_seconds=0.1).instant("a")


def test_a_port_on_which_nothing_listens_is_an_error():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(PrometheusError, match=r"does not answer: .*refused; check that it runs"):
        at(url).instant("a")


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (
            502,
            b"<h1>Bad\n gateway</h1>" + b"x" * 1000,
            r"HTTP 502 Bad Gateway: <h1>Bad gateway</h1>x{150,}; check that",
        ),
        (401, b"Unauthorized\n", "HTTP 401 Unauthorized: Unauthorized; check the token or the password"),
        (403, b"", "HTTP 403 Forbidden: ; check the token or the password"),
        (200, b"<html>", "an answer that cannot be read: Invalid JSON"),
        (503, b'{"status":"error","errorType":"timeout","error":"query timed out"}', "says: timeout: query timed out"),
        (200, b'{"status":"error","errorType":"execution","error":"too many"}', "says: execution: too many"),
    ],
)
def test_what_else_comes_back_is_told(status, body, said):
    refusing = serving(lambda handler: answer(handler, body, status))
    with refusing as server, pytest.raises(PrometheusError, match=said) as error:
        at(server.url).instant("a")
    assert len(str(error.value)) < 500
    assert "\n" not in str(error.value)


def test_a_connection_that_is_cut_in_the_middle_is_an_error_and_the_next_one_is_new():
    def cut(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", "100")
        handler.end_headers()
        handler.wfile.write(b'{"status"')
        handler.close_connection = True

    with serving(cut) as server:
        prometheus = at(server.url)
        with pytest.raises(PrometheusError, match="does not answer"):
            prometheus.instant("a")
        server.respond = answer
        assert prometheus.instant("a") == TWO
