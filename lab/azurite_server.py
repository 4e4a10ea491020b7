"""Azurite, Microsoft's emulator of Azure's storage, behind a proxy that serves HTTPS and can disturb its answers."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import subprocess
from contextlib import AbstractContextManager
from email.utils import formatdate
from pathlib import Path

from .authority import make_authority
from .cache import require
from .parts.cloud_emulators import AZURITE
from .processes import Process
from .store_server import StoreServer, running_store

ACCOUNT, CONTAINER = "null", "lake"
"""The account has the name by which Hadoop's client calls any account whose blob endpoint is at another address."""

KEY = base64.b64encode(hashlib.sha512(b"the lab's account").digest()).decode()
_TRUST_PASSWORD = "changeit"
"""That of a store of certificates, which are public."""

_PROGRAM = "node_modules/azurite/dist/src/blob/main.js"
_VERSION = "2021-08-06"
"""Version of the protocol by which the container is created."""


class AzuriteServer(StoreServer):
    """An emulator with its data in memory; it has one container, ``lake``."""

    name = "Azurite"

    def __init__(self, folder: Path, host: str = "127.0.0.1") -> None:
        require("keytool")
        make_authority(folder)
        super().__init__(folder, host, f"{ACCOUNT}/{CONTAINER}", folder / "server.pem")
        self._trust = folder / "trust.p12"
        self._make_trust()

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
            "SSL_CERT_FILE": str(self.folder / "ca.pem"),
            "JAVA_TOOL_OPTIONS": trust,
        }

    def process(self) -> Process:
        """Start the process of the server."""
        address = ["--blobHost", self._host, "--blobPort", str(self._port)]
        options = ["--silent", "--skipApiVersionCheck", "--disableTelemetry", "--inMemoryPersistence"]
        return Process(
            ["node", AZURITE.find() / _PROGRAM, *address, *options],
            self.folder / "server.log",
            environment={"AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"},
        )

    def ask(self, connection: http.client.HTTPConnection) -> None:
        """Create the container."""
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
        login = {"Authorization": f"SharedKey {ACCOUNT}:{signature}", "Content-Length": "0"}
        connection.request("PUT", f"{path}?restype=container", headers=headers | login)
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status in (201, 409), text

    def _make_trust(self) -> None:
        command: list[str | Path] = [
            "keytool",
            "-importcert",
            "-noprompt",
            "-alias",
            "lab",
            "-file",
            self.folder / "ca.pem",
        ]
        store: list[str | Path] = ["-keystore", self._trust, "-storetype", "PKCS12", "-storepass", _TRUST_PASSWORD]
        subprocess.run([*command, *store], check=True, capture_output=True, timeout=60)


def running_azurite(folder: Path) -> AbstractContextManager[AzuriteServer]:
    """Run Azurite with its data in memory, and its files in a folder."""
    return running_store(AzuriteServer(folder))
