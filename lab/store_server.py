"""An object store for tests, behind a proxy in which its answers can be disturbed."""

from __future__ import annotations

import http.client
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, TypeVar

from .ports import free_port
from .processes import Process
from .store_proxy import Rule, StoreProxy, undisturbed
from .waiting import wait_until


class StoreServer(ABC):
    """A server that runs from ``start`` to ``close``, or to the end of the process that started it.

    Clients connect to a proxy, which is there as long as this object is. ``folder`` has the files of the server.

    Args:
        folder: the folder of the server.
        host: the address at which server and proxy listen.
        bucket: the path of the only bucket.
        certificate: certificate and key of the proxy; without them, it has no TLS.
    """

    name: ClassVar[str]
    """What the server is called in messages."""

    def __init__(self, folder: Path, host: str, bucket: str, certificate: Path | None = None) -> None:
        self.folder, self._host, self._port = folder, host, free_port()
        self._scheme = "http" if certificate is None else "https"
        self._process: Process | None = None
        self._proxy = StoreProxy(host, free_port(), self._port, bucket, certificate)

    @property
    def url(self) -> str:
        """The URL of the proxy, which clients take for the server's."""
        return f"{self._scheme}://{self._host}:{self._proxy.server_port}"

    @property
    @abstractmethod
    def environment(self) -> dict[str, str]:
        """The environment of a client."""

    @property
    def requests(self) -> Counter[str]:
        """Number of requests so far: by method, and ``LIST``."""
        return self._proxy.counted.copy()

    @abstractmethod
    def process(self) -> Process:
        """Start the process of the server. Raise ``MissingError`` if its program was not made."""

    @abstractmethod
    def ask(self, connection: http.client.HTTPConnection) -> None:
        """Send a request that the server answers as soon as it can be used. Raise OSError if it does not answer."""

    def start(self) -> None:
        """Start the server, and wait until it answers.

        Raises:
            MissingError: its program was not made.
        """
        self._process = self.process()
        wait_until(self._answers, lambda: f"{self.name} answers: {self._running().said[-2000:]}", seconds=60)

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
        assert self._running().status is None, f"{self.name} ended: {self._running().said[-2000:]}"
        connection = http.client.HTTPConnection(self._host, self._port, timeout=5)
        try:
            self.ask(connection)
        except OSError:
            return False
        finally:
            connection.close()
        return True


Store = TypeVar("Store", bound=StoreServer)


@contextmanager
def running_store(server: Store) -> Iterator[Store]:
    """Run a server for the ``with`` block.

    Raises:
        MissingError: its program was not made.
    """
    try:
        server.start()
        yield server
    finally:
        server.close()
