"""Without the lease no request is made that changes something; with it, none that may outlast it."""

import socket
import threading
import time
from contextlib import closing

import pytest
from kubernetes.client import Configuration, CoreV1Api, V1ConfigMap
from urllib3.exceptions import HTTPError

from millrace_operator.kube.client import Client
from millrace_operator.leadership.leader import NotLeadingError
from millrace_operator.telemetry.metrics import OperatorMetrics


class Silent:
    """Takes connections and requests, and never answers; counts them."""

    def __init__(self):
        self.listener, self.asked = socket.create_server(("127.0.0.1", 0)), []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self.listener.close()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            try:
                sent = connection.recv(1 << 16)
            except ConnectionResetError:
                sent = b""
            self.asked.append((connection, sent.split(b" ")[0]))


@pytest.fixture
def server(monkeypatch):
    with closing(Silent()) as silent:
        configuration = Configuration(host=f"http://127.0.0.1:{silent.listener.getsockname()[1]}")
        monkeypatch.setattr(Configuration, "_default", configuration)
        yield silent


def refuse():
    raise NotLeadingError


def test_without_the_lease_nothing_is_changed(server):
    core = CoreV1Api(Client(OperatorMetrics(), refuse))
    with pytest.raises(NotLeadingError):
        core.create_namespaced_config_map("default", V1ConfigMap())
    for change in (core.patch_namespaced_config_map, core.replace_namespaced_config_map):
        with pytest.raises(NotLeadingError):
            change("name", "default", V1ConfigMap())
    with pytest.raises(NotLeadingError):
        core.delete_namespaced_config_map("name", "default")
    assert server.asked == []


def test_a_prepared_change_is_not_sent_after_the_lease_has_ended(server):
    answers = iter([60.0])

    def ending():
        for seconds in answers:
            return seconds
        raise NotLeadingError

    core = CoreV1Api(Client(OperatorMetrics(), ending))
    with pytest.raises(NotLeadingError):
        core.patch_namespaced_config_map("name", "default", V1ConfigMap())
    deadline = time.monotonic() + 60
    while not server.asked and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [sent for _, sent in server.asked] == [b""]  # a connection, and nothing over it


def test_a_change_is_given_up_when_the_lease_may_end_and_is_not_tried_again(server):
    metrics = OperatorMetrics()
    core = CoreV1Api(Client(metrics, lambda: 0.3))
    with pytest.raises(HTTPError):
        core.delete_namespaced_config_map("name", "default", _request_timeout=(60.0, 60.0))
    assert [method for _, method in server.asked] == [b"DELETE"]
    labels = {"verb": "DELETE", "resource": "configmaps", "code": "none"}
    assert metrics.registry.get_sample_value("millrace_operator_api_requests_total", labels) == 1


def test_reading_needs_no_lease(server):
    core = CoreV1Api(Client(OperatorMetrics(), refuse))
    with pytest.raises(HTTPError):
        core.read_namespaced_config_map("name", "default", _request_timeout=0.3)
    assert [method for _, method in server.asked] == [b"GET"]
