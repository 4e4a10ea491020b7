"""Small HTTP servers for tests that record their requests."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

ONE = b'{"status":"success","data":{"resultType":"scalar","result":[1.5,"2"]}}'


@dataclass
class Request:
    path: str
    headers: dict[str, str]
    form: dict[str, str]


@dataclass
class Server:
    """A server that records requests and connections. ``respond`` writes the response to each request."""

    url: str
    respond: Callable[[BaseHTTPRequestHandler], None]
    requests: list[Request] = field(default_factory=list)
    connections: int = 0


def answer(handler, body=ONE, status=200, **headers):
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **headers}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)


@contextmanager
def serving(respond=answer) -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self):
            super().setup()
            server.connections += 1

        def do_POST(self):
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            fields = {name: value for name, (value,) in form.items()}
            self.noted = Request(self.path, dict(self.headers), fields)
            server.requests.append(self.noted)
            server.respond(self)

        def log_message(self, *_):
            pass

    class Listener(ThreadingHTTPServer):
        def handle_error(self, *_):
            """Ignore clients that disconnect in the middle of a response."""

    listener = Listener(("127.0.0.1", 0), Handler)
    server = Server(f"http://127.0.0.1:{listener.server_port}", respond)
    thread = threading.Thread(target=listener.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()
