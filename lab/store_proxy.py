"""A proxy between clients and an object store, in which requests are counted, and disturbed as a test wants it."""

from __future__ import annotations

import http.client
import re
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

_ANSWER_SECONDS = 120.0


class StoreRequest(NamedTuple):
    """A client's request for an object or a listing. ``key`` is without the bucket, and empty for a listing."""

    method: str
    key: str

    @property
    def is_change(self) -> bool:
        """Whether the request changes something."""
        return self.method not in ("GET", "HEAD")


Rule = Callable[[StoreRequest], "Disturbance | None"]
"""The disturbance that a request meets, or None. Requests call it at the same time, and it may wait."""


class Disturbance(NamedTuple):
    """What happens to a request: ``status`` answers it at once; ``loses_answer`` breaks the connection after it was done.

    ``seconds`` is how much later it is forwarded, or answered. ``code`` is the store's word for the status, if not the
    usual one.
    """

    status: int = 0
    loses_answer: bool = False
    seconds: float = 0.0
    code: str = ""


class StoreProxy(ThreadingHTTPServer):
    """A proxy that listens until it is closed.

    Args:
        host, port: where it listens.
        target: port of the store on the same host.
        bucket: path of the bucket, which keys are without.
        certificate: file of the certificate and the key by which it serves HTTPS; None for HTTP.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, host: str, port: int, target: int, bucket: str, certificate: Path | None = None) -> None:
        self.target, self.bucket = (host, target), bucket
        self.rule: Rule = undisturbed
        self.counted: Counter[str] = Counter()
        super().__init__((host, port), _Exchange)
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a client, or the server, is gone."""


class _Exchange(BaseHTTPRequestHandler):
    """Requests of one connection. They are forwarded as they are, since clients sign them."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer is sent as a whole: its second part would wait 40 ms for an acknowledgement
    disable_nagle_algorithm = True
    server: StoreProxy

    def do_GET(self) -> None:
        self._exchange()

    do_PUT = do_POST = do_DELETE = do_HEAD = do_GET  # noqa: N815 - names of the standard library

    def handle_expect_100(self) -> bool:
        """Send the client's go-ahead at once: it waits for it before it sends an object."""
        sent = super().handle_expect_100()
        self.wfile.flush()
        return sent

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def _exchange(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        key = re.sub(rf"^/{self.server.bucket}/?", "", self.path.partition("?")[0])
        request = StoreRequest(self.command, key)
        self.server.counted["LIST" if self.command == "GET" and not key else self.command] += 1
        met = self.server.rule(request) or Disturbance()
        time.sleep(met.seconds)
        if met.status:
            return self._answer(met.status, [("Content-Type", "application/xml")], _refusal(met))
        connection = http.client.HTTPConnection(*self.server.target, timeout=_ANSWER_SECONDS)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in ("connection", "expect"):
                    connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            content = answer.read()
        except OSError:
            self.close_connection = True
            return None
        finally:
            connection.close()
        if met.loses_answer:
            self.close_connection = True
            return None
        return self._answer(answer.status, answer.getheaders(), content)

    def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        self.send_response_only(status)
        length = str(len(content))
        for name, value in headers:
            if name.lower() == "content-length" and self.command == "HEAD":
                length = value
            elif name.lower() not in ("connection", "content-length", "transfer-encoding"):
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()


def undisturbed(_: StoreRequest) -> None:
    """Forward every request."""


def _refusal(met: Disturbance) -> bytes:
    code = met.code or {403: "AccessDenied", 503: "SlowDown"}.get(met.status, "InternalError")
    return f"<Error><Code>{code}</Code><Message>The test refuses this.</Message></Error>".encode()
