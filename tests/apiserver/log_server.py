"""A server that serves pod logs like the API server. The lab's real API server has none, because it has no kubelet."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml


class LogServer(ThreadingHTTPServer):
    """A server with one query, ``trips``, and logs by pod.

    A log is a list of parts to send; a function among them is called before the next part is sent. ``asked`` are the
    paths of requests for logs, with their parameters.
    """

    daemon_threads = True

    def __init__(self, logs: dict[str, list[bytes | Callable[[], object]]]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.logs = logs
        self.asked: list[str] = []

    def write_kubeconfig(self, path: Path) -> Path:
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "logs",
            "clusters": [{"name": "logs", "cluster": {"server": f"http://127.0.0.1:{self.server_port}"}}],
            "contexts": [{"name": "logs", "context": {"cluster": "logs", "user": "me"}}],
            "users": [{"name": "me", "user": {}}],
        }
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        return path


@contextmanager
def running_log_server(logs: dict[str, list[bytes | Callable[[], object]]]) -> Iterator[LogServer]:
    with LogServer(logs) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: LogServer

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path.endswith("/streamqueries/trips"):
            self._answer(
                {"metadata": {"name": "trips", "namespace": "default", "uid": "0a1b", "generation": 1}, "spec": {}}
            )
        elif path.endswith("/pods"):
            items = [{"metadata": {"name": name}} for name in self.server.logs]
            self._answer({"apiVersion": "v1", "kind": "PodList", "items": items})
        else:
            self.server.asked.append(self.path)
            self._stream(self.server.logs[path.split("/")[-2]])

    def _answer(self, document: Any) -> None:
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, parts: list[bytes | Callable[[], object]]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for part in parts:
            if callable(part):
                part()
            else:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing."""
