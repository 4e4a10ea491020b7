import http.client
import logging
import socket
import urllib.error
import urllib.request
from contextlib import closing, suppress
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from builders import PIN, a_batch
from millrace_api.errors import MillraceError
from millrace_jobs.run.job_metrics import JobMetrics
from millrace_jobs.run.observer import Health
from millrace_operator.telemetry.metrics import OperatorMetrics
from millrace_support import bounded_server
from millrace_support.bounded_server import ALL_ADDRESSES, MAX_CONNECTIONS
from millrace_support.http_server import HttpServer, ProbeResult


@pytest.fixture
def metrics():
    return JobMetrics("flights")


@pytest.fixture
def health():
    return Health(allowed_silence=60)


def serve(registry, health, host="127.0.0.1", port=0):
    server = HttpServer(registry, health.liveness, health.readiness, host, port)
    server.start()
    return server


@pytest.fixture
def server(metrics, health):
    with closing(serve(metrics.registry, health)) as running:
        yield running


def get(server, path, **headers):
    """Status, content type and text."""
    request = urllib.request.Request(server.url + path, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.headers["Content-Type"], refusal.read().decode()


def algorithms(families):
    samples = [sample for family in families for sample in family.samples if sample.name == "millrace_plan_info"]
    return [sample.labels["algorithm"] for sample in samples]


def test_metrics_are_served_before_and_after_a_plan_change(server, metrics):
    metrics.record(a_batch())
    status, kind, text = get(server, "/metrics")
    assert (status, kind.split(";")[0]) == (200, "text/plain")
    assert algorithms(parse_text(text)) == ["pkg"]
    metrics.record(a_batch(pin=replace(PIN, epoch=2, algorithm="hash")))
    assert algorithms(parse_text(get(server, "/metrics")[2])) == ["hash"]


def test_openmetrics_is_served_where_it_is_asked_for(server, metrics):
    metrics.record(a_batch())
    status, kind, text = get(server, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert (status, kind.split(";")[0]) == (200, "application/openmetrics-text")
    assert algorithms(parse_openmetrics(text)) == ["pkg"]


def test_only_the_metrics_that_are_asked_for_are_served(server, metrics):
    metrics.record(a_batch())
    text = get(server, "/metrics?name[]=millrace_plan_epoch")[2]
    assert [family.name for family in parse_text(text)] == ["millrace_plan_epoch"]


def test_probes_follow_the_health(server, health):
    assert get(server, "/healthz")[::2] == (200, "starting\n")
    assert get(server, "/readyz")[::2] == (503, "starting\n")
    health.running()
    assert get(server, "/readyz")[::2] == (503, "waiting for the first batch\n")
    health.computed()
    assert get(server, "/readyz")[::2] == (200, "running\n")
    health.failed("a disk is full")
    assert get(server, "/healthz")[::2] == (503, "failed: a disk is full\n")
    assert get(server, "/readyz")[::2] == (503, "failed: a disk is full\n")


@pytest.mark.parametrize("path", ["/", "/metrics/", "/metricsx", "/../metrics", "/%6detrics"])
def test_other_paths_are_not_found(server, path):
    assert get(server, path)[::2] == (404, "there are /metrics, /healthz and /readyz\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "BREW"])
def test_other_methods_are_not_allowed(server, method):
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)) as connection:
        connection.request(method, "/metrics")
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Allow"]) == (405, "GET")
        assert answer.read() == (b"" if method == "HEAD" else b"only GET is allowed\n")


def test_a_port_that_is_taken_is_refused(server):
    with pytest.raises(MillraceError) as caught:
        serve(CollectorRegistry(), Health(60), port=server.port)
    assert str(caught.value) == (
        f"cannot serve metrics on 127.0.0.1:{server.port}: address already in use; "
        "choose another port from 1024 to 65535, or 0 for a free one, and an address of this machine"
    )


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70_000), ("127.0.0.1", -1), ("192.0.2.1", 0)])
def test_an_address_that_cannot_be_used_is_refused(host, port):
    with pytest.raises(MillraceError, match=f"cannot serve metrics on {host}:{port}: "):
        serve(CollectorRegistry(), Health(60), host=host, port=port)


def test_the_port_is_free_again_after_close(metrics, health):
    first = serve(metrics.registry, health)
    first.close()
    first.close()
    with closing(serve(metrics.registry, health, port=first.port)) as second:
        assert get(second, "/healthz")[0] == 200


def dial(server):
    return socket.create_connection(("127.0.0.1", server.port), timeout=30)


def everything(connection):
    return b"".join(iter(lambda: connection.recv(4096), b""))


def test_one_connection_too_many_is_turned_away(server):
    held = [dial(server) for _ in range(MAX_CONNECTIONS)]
    with dial(server) as one_more:
        assert everything(one_more).startswith(b"HTTP/1.0 503 ")
    for connection in held:
        connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert everything(connection).endswith(b"starting\n")
        connection.close()


def test_a_client_that_takes_too_long_is_cut_off(server, monkeypatch, capfd):
    with dial(server) as slow:
        slow.sendall(b"GET /met")
        monkeypatch.setattr(bounded_server, "CONNECTION_SECONDS", 0.0)
        assert b"200" not in everything(slow)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "said",
    [
        *(b"", b"\r\n", b"nonsense\r\n\r\n", b"GET /metrics", b"GET http://[ HTTP/1.0\r\n\r\n", b"\x00\xff\r\n\r\n"),
        b"GET " + b"/" * 70_000 + b"\r\n\r\n",
    ],
)
def test_no_client_makes_noise_in_the_terminal(server, capfd, caplog, said):
    with dial(server) as client:
        client.sendall(said)
        client.shutdown(socket.SHUT_WR)
        with suppress(ConnectionResetError):
            everything(client)
    assert capfd.readouterr() == ("", "")
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_failure_to_write_metrics_is_an_answer(server):
    status, _, text = get(server, "/metrics", Accept="application/openmetrics-text; version=x")
    assert (status, text[:31]) == (500, "the metrics cannot be written: ")


def test_the_server_listens_on_ipv6(metrics, health):
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6 loopback address")
    with closing(serve(metrics.registry, health, host="::1")) as running:
        assert running.url == f"http://[::1]:{running.port}"
        assert get(running, "/healthz")[0] == 200


@pytest.fixture
def wrong():
    """What the probe of liveness finds."""
    return []


@pytest.fixture
def operator_server(wrong):
    """A server of an operator's metrics, whose probes are functions."""
    server = HttpServer(
        OperatorMetrics().registry,
        lambda: ProbeResult(not wrong, "; ".join(wrong) or "ok"),
        lambda: ProbeResult(True, "ok"),
    )
    server.start()
    with closing(server):
        yield server


def test_an_operator_serves_its_metrics_and_probes(operator_server, wrong):
    assert "millrace_operator_leader" in get(operator_server, "/metrics")[2]
    assert get(operator_server, "/healthz")[::2] == (200, "ok\n")
    wrong.append("the watch is dead")
    assert get(operator_server, "/healthz")[::2] == (503, "the watch is dead\n")
    assert get(operator_server, "/readyz?verbose")[::2] == (200, "ok\n")
    assert get(operator_server, "/")[::2] == (404, "there are /metrics, /healthz and /readyz\n")


def test_slow_clients_are_cut_and_their_places_are_free_again(server, monkeypatch):
    monkeypatch.setattr(bounded_server, "CONNECTION_SECONDS", 0.5)
    slow = [dial(server) for _ in range(MAX_CONNECTIONS)]
    for connection in slow:
        connection.sendall(b"GET /met")
    for connection in slow:
        with closing(connection):
            connection.recv(1 << 16)  # the end, when its time is over
    while get(server, "/healthz")[0] == 503:
        pass
    assert get(server, "/healthz")[0] == 200


def test_a_server_that_was_never_started_closes(metrics, health):
    HttpServer(metrics.registry, health.liveness, health.readiness).close()


def test_all_addresses_are_those_of_both_families(metrics, health):
    with closing(serve(metrics.registry, health, ALL_ADDRESSES)) as server:
        for host in ("127.0.0.1", "[::1]") if socket.has_dualstack_ipv6() else ("127.0.0.1",):
            with urllib.request.urlopen(f"http://{host}:{server.port}/healthz", timeout=10) as answer:
                assert answer.status == 200


def test_all_addresses_are_those_of_ipv4_where_there_is_no_other(metrics, health, monkeypatch):
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    with closing(serve(metrics.registry, health, ALL_ADDRESSES)) as server:
        assert server.address_family == socket.AF_INET
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/healthz", timeout=10) as answer:
            assert answer.status == 200
