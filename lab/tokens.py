"""An identity provider for tests: it gives out signed tokens (JWT, RS256) by client credentials, and shows its key.

It can be made to refuse, to fail, and to be away. Keys are made, and tokens signed, by openssl.
"""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from .cache import require

ISSUER = "https://issuer.test"


class TokenServer:
    """A server with a token endpoint and the key set by which its tokens are verified.

    Args:
        folder: folder for its key.
        port: port on loopback to listen on.
        certificate: file with its key and certificate for TLS; None for plain HTTP.

    Attributes:
        clients: secrets by client.
        audience: audience of its tokens.
        lifetime: seconds for which a token is valid.
        failure: status and text of an answer to every request for a token; None to give tokens out.
        asked: the forms of all requests for tokens.
    """

    def __init__(self, folder: Path, port: int, certificate: Path | None = None) -> None:
        require("openssl")
        self._key = folder / "signing.pem"
        if not self._key.exists():
            _openssl("genrsa", "-out", str(self._key), "2048")
        self.clients: dict[str, str] = {}
        self.audience = "kafka"
        self.lifetime = 3600.0
        self.failure: tuple[int, str] | None = None
        self.asked: list[dict[str, list[str]]] = []
        self._server = _listener(self, port, certificate)
        self._scheme = "http" if certificate is None else "https"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def endpoint(self) -> str:
        """The URL that clients get tokens from."""
        return f"{self._scheme}://127.0.0.1:{self._server.server_port}/oauth2/token"

    @property
    def keys(self) -> str:
        """The URL of the key set."""
        return f"{self._scheme}://127.0.0.1:{self._server.server_port}/keys"

    def close(self) -> None:
        """Be away."""
        self._server.shutdown()
        self._server.server_close()

    def key_set(self) -> dict[str, Any]:
        """Return the key set (JWKS) with the public key."""
        modulus = _openssl("rsa", "-in", str(self._key), "-noout", "-modulus").decode().strip().partition("=")[2]
        key = {
            "kty": "RSA",
            "alg": "RS256",
            "use": "sig",
            "kid": "one",
            "e": "AQAB",
            "n": _base64(bytes.fromhex(modulus)),
        }
        return {"keys": [key]}

    def answer(self, login: str, form: dict[str, list[str]]) -> tuple[int, str]:
        """Return status and text of the answer to a request for a token, by its header and its form."""
        self.asked.append(form)
        if self.failure is not None:
            return self.failure
        client, _, secret = base64.b64decode(login.removeprefix("Basic ")).decode().partition(":")
        if self.clients.get(client) != secret:
            return 401, json.dumps({"error": "invalid_client", "error_description": "unknown client or secret"})
        if form.get("grant_type") != ["client_credentials"]:
            return 400, json.dumps({"error": "unsupported_grant_type"})
        token = self._token(client, form.get("scope", [""])[0])
        return 200, json.dumps({"access_token": token, "token_type": "Bearer", "expires_in": int(self.lifetime)})

    def _token(self, client: str, scope: str) -> str:
        now = int(time.time())  # a moment that is never ahead of the broker's clock
        claims = {"iss": ISSUER, "sub": client, "aud": self.audience, "iat": now, "exp": now + self.lifetime}
        claims |= {"scope": scope} if scope else {}
        parts = ({"alg": "RS256", "typ": "JWT", "kid": "one"}, claims)
        content = ".".join(_base64(json.dumps(part).encode()) for part in parts)
        signature = _openssl("dgst", "-sha256", "-sign", str(self._key), content=content.encode())
        return f"{content}.{_base64(signature)}"


@contextmanager
def running_tokens(folder: Path, port: int = 0, certificate: Path | None = None) -> Iterator[TokenServer]:
    """Run a server of tokens."""
    server = TokenServer(folder, port, certificate)
    try:
        yield server
    finally:
        server.close()


def _listener(tokens: TokenServer, port: int, certificate: Path | None) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(200, json.dumps(tokens.key_set()))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self._send(*tokens.answer(self.headers.get("Authorization", ""), parse_qs(body)))

        def _send(self, status: int, text: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *arguments: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    return server


def _openssl(*arguments: str, content: bytes = b"") -> bytes:
    return subprocess.run(["openssl", *arguments], input=content, check=True, capture_output=True, timeout=60).stdout


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
