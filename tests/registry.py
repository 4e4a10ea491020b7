"""A schema registry in memory, with the part of Confluent's interface that sources and sinks use, over HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

Judge = Callable[[dict[str, Any], dict[str, Any]], list[str]]
"""Returns what is said against a schema after the latest one of its subject."""


class Registry:
    """Schemas by id, and subjects with their versions.

    ``judge`` decides on compatibility, ``authorization`` is the header that every request needs, and ``asked`` are the
    method and path of all requests.
    """

    def __init__(self, judge: Judge = lambda before, now: []) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self.judge = judge
        self.authorization: str | None = None
        self.asked: list[tuple[str, str]] = []
        self.url = ""

    def add(self, subject: str, schema: str, kind: str = "AVRO", references: list[dict[str, Any]] | None = None) -> int:
        """Register a schema; return its id."""
        document = {"schema": schema, "schemaType": kind, **({"references": references} if references else {})}
        if document not in self.schemas:
            self.schemas.append(document)
        number = self.schemas.index(document) + 1
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Return the status and the JSON that answer a request."""
        parts = [unquote(part) for part in path.strip("/").split("/")]
        if method == "GET" and parts[:2] == ["schemas", "ids"]:
            number = int(parts[2])
            return (200, self.schemas[number - 1]) if 0 < number <= len(self.schemas) else _missing(40403)
        subject = parts[1] if parts[0] == "subjects" else parts[2]
        versions = self.subjects.get(subject, [])
        if method == "GET":
            return self._version(subject, versions, parts[3])
        document = {"schemaType": "AVRO", **body}
        known = self.schemas.index(document) + 1 if document in self.schemas else None
        if parts[0] == "compatibility":
            if not versions:
                return _missing(40401)
            said = self.judge(self.schemas[versions[-1] - 1], document)
            return 200, {"is_compatible": not said, "messages": said}
        if parts[-1] == "versions":
            return 200, {"id": self.add(subject, document["schema"], document["schemaType"])}
        return (200, {"id": known}) if known in versions else _missing(40403 if versions else 40401)

    def _version(self, subject: str, versions: list[int], wanted: str) -> tuple[int, Any]:
        place = len(versions) if wanted == "latest" else int(wanted)
        if not 0 < place <= len(versions):
            return _missing(40402 if versions else 40401)
        number = versions[place - 1]
        return 200, self.schemas[number - 1] | {"id": number, "version": place, "subject": subject}


def _missing(code: int) -> tuple[int, Any]:
    return 404, {"error_code": code, "message": "it is not there"}


@contextmanager
def running_registry(registry: Registry, context: Any = None) -> Iterator[Registry]:
    """Serve a registry on a port of its own, with TLS if ``context`` is one; set its ``url``."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._handle("GET", None)

        def do_POST(self) -> None:
            self._handle("POST", json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _handle(self, method: str, body: Any) -> None:
            path = urlsplit(self.path).path
            registry.asked.append((method, path))
            if registry.authorization not in (None, self.headers.get("Authorization")):
                status, answer = 401, {"error_code": 401, "message": "Unauthorized"}
            else:
                status, answer = registry.answer(method, path, body)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    registry.url = f"http{'' if context is None else 's'}://127.0.0.1:{server.server_address[1]}"
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
