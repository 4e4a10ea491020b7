"""A server that answers as an API server's proxy to a driver's pod does."""

from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from kubernetes.client import Configuration

from millrace_operator.page.driver_page import DriverPages


@contextmanager
def proxy(code=200, kind="text/html; charset=utf-8", body=b"<title>fares</title>", location=None):
    """A server that answers everything so, and the requests that it has got."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append((self.path, self.headers["Authorization"]))
            self.send_response(code)
            self.send_header("Content-Type", kind)
            if location:
                self.send_header("Location", location)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield configured(f"http://127.0.0.1:{server.server_address[1]}"), asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def configured(host):
    configuration = Configuration()
    configuration.host = host
    configuration.cert_file = configuration.key_file = "/nonexistent"  # the operator's own credentials are not used
    return DriverPages(configuration)
