"""Azurite, Microsoft's emulator of Azure's storage, behind a proxy that serves HTTPS and can disturb its answers."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path

from .authority import make_authority
from .cache import require
from .parts.cloud_emulators import AZURITE
from .ports import free_port
from .processes import Process
from .store_proxy import Rule, StoreProxy, undisturbed
from .waiting import wait_until

ACCOUNT, CONTAINER = "null", "lake"
"""The account has the name by which Hadoop's client calls any account whose blob endpoint is at another address."""

KEY = base64.b64encode(hashlib.sha512(b"the lab's account").digest()).decode()
_TRUST_PASSWORD = "changeit"
"""That of a store of certificates, which are public."""

_PROGRAM = "node_modules/azurite/dist/src/blob/main.js"
_VERSION = "2021-08-06"
"""Version of the protocol by which the container is created."""


class AzuriteServer:
    """An emulator from ``start`` to the end of the process that started it; it has one container, ``lake``.

    Clients connect to a proxy, which is there as long as this object is.
    """

    def __init__(self, folder: Path, host: str = "127.0.0.1") -> None:
        require("keytool")
        self._folder, self._host, self._port = folder, host, free_port()
        self._process: Process | None = None
        make_authority(folder)
        self._trust = folder / "trust.p12"
        self._make_trust()
        bucket = f"{ACCOUNT}/{CONTAINER}"
        self._proxy = StoreProxy(host, free_port(), self._port, bucket, folder / "server.pem")

    @property
    def url(self) -> str:
        """The URL of the proxy, which clients take for the server's."""
        return f"https://{self._host}:{self._proxy.server_port}"

    @property
    def place(self) -> str:
        """The URI of the container."""
        return f"abfss://{CONTAINER}@{ACCOUNT}.blob.core.windows.net"

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a client, whose Java and whose OpenSSL trust the proxy."""
        trust = f"-Djavax.net.ssl.trustStore={self._trust} -Djavax.net.ssl.trustStorePassword={_TRUST_PASSWORD}"
        return {
            "AZURE_STORAGE_ENDPOINT": self.url,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
            "SSL_CERT_FILE": str(self._folder / "ca.pem"),
            "JAVA_TOOL_OPTIONS": trust,
        }

    @property
    def requests(self) -> Counter[str]:
        """Number of requests so far: by method, and ``LIST``."""
        return self._proxy.counted.copy()

    def start(self) -> None:
        """Start the server, wait until it answers, and create the container."""
        address = ["--blobHost", self._host, "--blobPort", str(self._port)]
        options = ["--silent", "--skipApiVersionCheck", "--disableTelemetry", "--inMemoryPersistence"]
        self._process = Process(
            ["node", AZURITE.find() / _PROGRAM, *address, *options],
            self._folder / "server.log",
            environment={"AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"},
        )
        wait_until(self._creates, lambda: f"Azurite answers: {self._running().said[-2000:]}", seconds=60)

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

    def _make_trust(self) -> None:
        command = ["keytool", "-importcert", "-noprompt", "-alias", "lab", "-file", self._folder / "ca.pem"]
        store = ["-keystore", self._trust, "-storetype", "PKCS12", "-storepass", _TRUST_PASSWORD]
        subprocess.run([*command, *store], check=True, capture_output=True, timeout=60)

    def _creates(self) -> bool:
        """Create the container; return whether the server has answered."""
        assert self._running().status is None, f"Azurite ended: {self._running().said[-2000:]}"
        connection = http.client.HTTPConnection(self._host, self._port, timeout=5)
        path = f"/{ACCOUNT}/{CONTAINER}"
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": _VERSION}
        signed = "\n".join(
            (
                "PUT",
                *[""] * 11,
                *(f"{name}:{value}" for name, value in headers.items()),
                f"/{ACCOUNT}{path}",
                "restype:container",
            )
        )
        signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), signed.encode(), "sha256")).decode()
        try:
            login = {"Authorization": f"SharedKey {ACCOUNT}:{signature}", "Content-Length": "0"}
            connection.request("PUT", f"{path}?restype=container", headers=headers | login)
            answer = connection.getresponse()
            text = answer.read()
        except OSError:
            return False
        finally:
            connection.close()
        assert answer.status in (201, 409), text
        return True


@contextmanager
def running_azurite(folder: Path) -> Iterator[AzuriteServer]:
    """Run Azurite with its data in memory, and its files in a folder.

    Raises:
        MissingError: it was not made.
    """
    server = AzuriteServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.close()
