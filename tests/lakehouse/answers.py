"""A server of HTTP for tests whose answers are given in advance."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def answering(*answers: tuple[int, str]) -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """Run a server that gives these answers, the last one again and again; yield its URL and what it was asked."""
    asked: list[tuple[str, bytes]] = []
    left = list(answers)

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked.append((self.path + " " + self.headers.get("Authorization", ""), body))
            status, text = left.pop(0) if len(left) > 1 else left[0]
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_POST  # noqa: N815 - the server's name for it

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
