"""An S3 server for tests, with its objects in a folder of the test, and a proxy in which its answers can be disturbed."""

from __future__ import annotations

import http.client
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

from .parts.go_programs import S3_SERVER
from .ports import free_port
from .processes import Process
from .waiting import wait_until

ACCESS, SECRET = "lab-access", "lab-secret-9c41"
BUCKET = "lake"
_ANSWER_SECONDS = 120.0


class S3Request(NamedTuple):
    """A client's request for an object or a listing. ``key`` is without the bucket, and empty for a listing."""

    method: str
    key: str

    @property
    def is_change(self) -> bool:
        """Whether the request changes something."""
        return self.method not in ("GET", "HEAD")


Rule = Callable[[S3Request], "Disturbance | None"]
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


class S3Server:
    """A server from ``start`` to ``kill``, or to the end of the process that started it. It has one bucket, ``lake``.

    Clients connect to a proxy, which is there as long as this object is. ``folder`` has the objects, as files.
    """

    def __init__(self, folder: Path, host: str = "127.0.0.1") -> None:
        self.folder, self._host = folder, host
        self._port, self._process = free_port(), None
        (folder / "objects" / BUCKET).mkdir(parents=True)
        self._proxy = _Proxy(host, free_port(), self._port)

    @property
    def url(self) -> str:
        """The URL of the proxy, which clients take for the server's."""
        return f"http://{self._host}:{self._proxy.server_port}"

    @property
    def direct_url(self) -> str:
        """The URL of the server itself, without the proxy, which costs more than a small request."""
        return f"http://{self._host}:{self._port}"

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a client."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": ACCESS,
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }

    @property
    def requests(self) -> Counter[str]:
        """Number of requests so far: by method, and ``LIST``."""
        return self._proxy.counted.copy()

    def start(self) -> None:
        """Start the server with its objects, and wait until it answers."""
        command = [S3_SERVER.find() / "versitygw", "--quiet", f"--port={self._host}:{self._port}"]
        login = {"ROOT_ACCESS_KEY": ACCESS, "ROOT_SECRET_KEY": SECRET}
        self._process = Process(
            [*command, "posix", self.folder / "objects"], self.folder / "server.log", environment=login
        )
        wait_until(self._answers, lambda: f"the S3 server answers: {self._running().said[-2000:]}", seconds=60)

    def kill(self) -> None:
        """Kill the server; its objects stay."""
        self._running().kill()

    def pause(self) -> None:
        """Pause the server. Connections stay open and get no answers."""
        self._running().pause()

    def resume(self) -> None:
        """Let a paused server go on."""
        self._running().resume()

    @contextmanager
    def disturbed(self, rule: Rule) -> Iterator[None]:
        """Disturb the requests of the ``with`` block."""
        self._proxy.rule = rule
        try:
            yield
        finally:
            self._proxy.rule = _undisturbed

    def close(self) -> None:
        """End the server and the proxy."""
        if self._process is not None:
            self._process.kill()
        self._proxy.shutdown()
        self._proxy.server_close()

    def _running(self) -> Process:
        assert self._process is not None
        return self._process

    def _answers(self) -> bool:
        assert self._running().status is None, f"the S3 server ended: {self._running().said[-2000:]}"
        connection = http.client.HTTPConnection(self._host, self._port, timeout=5)
        try:
            connection.request("GET", "/")
            connection.getresponse().read()
        except OSError:
            return False
        finally:
            connection.close()
        return True


@contextmanager
def running_s3(folder: Path, host: str = "127.0.0.1") -> Iterator[S3Server]:
    """Run an S3 server with its data in a new folder below this one.

    Raises:
        MissingError: the program was not made.
    """
    server = S3Server(folder, host)
    try:
        server.start()
        yield server
    finally:
        server.close()


class _Proxy(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, host: str, port: int, target: int) -> None:
        self.target = (host, target)
        self.rule: Rule = _undisturbed
        self.counted: Counter[str] = Counter()
        super().__init__((host, port), _Exchange)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a client, or the server, is gone."""


class _Exchange(BaseHTTPRequestHandler):
    """Requests of one connection. They are forwarded as they are, since clients sign them."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer is sent as a whole: its second part would wait 40 ms for an acknowledgement
    disable_nagle_algorithm = True
    server: _Proxy

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
        key = re.sub(rf"^/{BUCKET}/?", "", self.path.partition("?")[0])
        request = S3Request(self.command, key)
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


def _undisturbed(_: S3Request) -> None:
    """Forward every request."""


def _refusal(met: Disturbance) -> bytes:
    code = met.code or {403: "AccessDenied", 503: "SlowDown"}.get(met.status, "InternalError")
    return f"<Error><Code>{code}</Code><Message>The test refuses this.</Message></Error>".encode()
