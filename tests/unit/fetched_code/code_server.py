"""A server of code with every fault that a real one has, by the path that is asked for."""

from __future__ import annotations

import ssl
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

from code_packages import wheel

CONTENT = wheel({"routes.py": "N = 1\n"})


class CodeServer:
    """The server, its URL, and how often each path was asked for."""

    def __init__(self, certificate: Path | None = None) -> None:
        self.asked: Counter[str] = Counter()
        self.elsewhere = ""
        self.closed = Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked[self.path] += 1
                fault = self.path.split("/")[1]
                getattr(server, f"_{fault}")(self, first=server.asked[self.path] == 1)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None:
                """Say nothing of clients that have gone."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http{'s' * (certificate is not None)}://127.0.0.1:{self._server.server_port}"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.closed.set()
        self._server.shutdown()
        self._server.server_close()

    def _sound(self, handler: BaseHTTPRequestHandler, *, first: bool) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(CONTENT)))
        handler.end_headers()
        handler.wfile.write(CONTENT)

    def _missing(self, handler: BaseHTTPRequestHandler, *, first: bool) -> None:
        handler.send_error(404)

    def _secret(self, handler: BaseHTTPRequestHandler, *, first: bool) -> None:
        handler.send_error(403)

    def _busy(self, handler: BaseHTTPRequestHandler, *, first: bool) -> None:
        handler.send_error(503) if first else self._sound(handler, first=False)

    def _cut(self, handler: BaseHTTPRequestHandler, *, first: bool) -> None:
        """Close the connection in the middle of the first answer."""
        if not first:
            self._sound(handler, first=False)
            return
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(CONTENT)))
        handler.end_headers()
        handler.wfile.write(CONTENT[:10])

    def _headers(self, handler: BaseHTTPRequestHandler, *, first: bool) -> None:
        """Never come to the end of the headers, byte by byte, which no limit of a single read ends."""
        while not self.closed.is_set():
            handler.wfile.write(b"X")
            handler.wfile.flush()
            time.sleep(0.05)

    def _trickle(self, handler: BaseHTTPRequestHandler, *, first: bool) -> None:
        handler.send_response(200)
        handler.end_headers()
        self._headers(handler, first=first)

    def _endless(self, handler: BaseHTTPRequestHandler, *, first: bool) -> None:
        handler.send_response(200)
        handler.end_headers()
        while not self.closed.is_set():
            handler.wfile.write(bytes(1 << 16))

    def _large(self, handler: BaseHTTPRequestHandler, *, first: bool) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(1 << 40))
        handler.end_headers()

    def _near(self, handler: BaseHTTPRequestHandler, *, first: bool) -> None:
        self._refer(handler, f"{self.url}/sound/routes.whl")

    def _far(self, handler: BaseHTTPRequestHandler, *, first: bool) -> None:
        self._refer(handler, f"{self.elsewhere}/sound/routes.whl")

    def _disk(self, handler: BaseHTTPRequestHandler, *, first: bool) -> None:
        self._refer(handler, "file:///etc/passwd")

    def _refer(self, handler: BaseHTTPRequestHandler, place: str) -> None:
        handler.send_response(302)
        handler.send_header("Location", place)
        handler.end_headers()


@contextmanager
def code_server(certificate: Path | None = None) -> Iterator[CodeServer]:
    server = CodeServer(certificate)
    try:
        yield server
    finally:
        server.close()
