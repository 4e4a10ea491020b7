"""An S3 server for tests, with its objects in a folder of the test, and a proxy in which its answers can be disturbed."""

from __future__ import annotations

import http.client
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .parts.go_programs import S3_SERVER
from .ports import free_port
from .processes import Process
from .store_proxy import Rule, StoreProxy, undisturbed
from .waiting import wait_until

ACCESS, SECRET = "lab-access", "lab-secret-9c41"
BUCKET = "lake"


class S3Server:
    """A server from ``start`` to ``kill``, or to the end of the process that started it. It has one bucket, ``lake``.

    Clients connect to a proxy, which is there as long as this object is. ``folder`` has the objects, as files.
    """

    def __init__(self, folder: Path, host: str = "127.0.0.1") -> None:
        self.folder, self._host = folder, host
        self._port, self._process = free_port(), None
        (folder / "objects" / BUCKET).mkdir(parents=True)
        self._proxy = StoreProxy(host, free_port(), self._port, BUCKET)

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
            self._proxy.rule = undisturbed

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
