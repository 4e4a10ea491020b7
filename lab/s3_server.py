"""An S3 server for tests, with its objects in a folder of the test, and a proxy in which its answers can be disturbed."""

from __future__ import annotations

import http.client
from contextlib import AbstractContextManager
from pathlib import Path

from .parts.go_programs import S3_SERVER
from .processes import Process
from .store_server import StoreServer, running_store

ACCESS, SECRET = "lab-access", "lab-secret-9c41"
BUCKET = "lake"


class S3Server(StoreServer):
    """A server that can be killed and started again; it has one bucket, ``lake``, with its objects as files."""

    name = "the S3 server"

    def __init__(self, folder: Path, host: str = "127.0.0.1") -> None:
        super().__init__(folder, host, BUCKET)
        (folder / "objects" / BUCKET).mkdir(parents=True)

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

    def process(self) -> Process:
        """Start the process of the server."""
        command: list[str | Path] = [S3_SERVER.find() / "versitygw", "--quiet", f"--port={self._host}:{self._port}"]
        login = {"ROOT_ACCESS_KEY": ACCESS, "ROOT_SECRET_KEY": SECRET}
        return Process([*command, "posix", self.folder / "objects"], self.folder / "server.log", environment=login)

    def ask(self, connection: http.client.HTTPConnection) -> None:
        """Send a request without a login, which is refused."""
        connection.request("GET", "/")
        connection.getresponse().read()

    def kill(self) -> None:
        """Kill the server; its objects stay."""
        self._running().kill()

    def pause(self) -> None:
        """Pause the server. Connections stay open and get no answers."""
        self._running().pause()

    def resume(self) -> None:
        """Let a paused server go on."""
        self._running().resume()


def running_s3(folder: Path, host: str = "127.0.0.1") -> AbstractContextManager[S3Server]:
    """Run an S3 server with its data in a new folder below this one."""
    return running_store(S3Server(folder, host))
