"""Metrics and probes over HTTP, and clients that take their time."""

import socket
import urllib.error
import urllib.request
from contextlib import closing

import pytest

from millrace_api.errors import MillraceError
from millrace_operator.telemetry import server as serving
from millrace_operator.telemetry.metrics import OperatorMetrics
from millrace_operator.telemetry.server import MAX_CONNECTIONS, OperatorServer


@pytest.fixture
def wrong():
    """What the probe of liveness finds."""
    return []


@pytest.fixture
def server(wrong):
    made = OperatorServer("127.0.0.1", 0, OperatorMetrics().registry, lambda: "; ".join(wrong), lambda: "")
    made.start()
    yield made
    made.stop()


def get(server, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_address[1]}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.read().decode()


def test_pages(server, wrong):
    assert "millrace_operator_leader" in get(server, "/metrics")[1]
    assert get(server, "/healthz") == (200, "ok\n")
    wrong.append("the watch is dead")
    assert get(server, "/healthz") == (503, "the watch is dead\n")
    assert get(server, "/readyz?verbose") == (200, "ok\n")
    assert get(server, "/") == (404, "there are /metrics, /healthz and /readyz\n")


def test_slow_clients_are_cut_and_their_places_are_free_again(server, monkeypatch):
    monkeypatch.setattr(serving, "CONNECTION_SECONDS", 0.5)
    slow = [socket.create_connection(server.server_address) for _ in range(MAX_CONNECTIONS)]
    for connection in slow:
        connection.sendall(b"GET /met")
    for connection in slow:
        with closing(connection):
            connection.settimeout(30)
            connection.recv(1 << 16)  # the end, when its time is over
    while get(server, "/healthz")[0] == 503:
        pass
    assert get(server, "/healthz")[0] == 200


def test_a_port_that_is_taken_is_told():
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(MillraceError, match="choose another port"):
        OperatorServer("127.0.0.1", taken.getsockname()[1], OperatorMetrics().registry, str, str)
