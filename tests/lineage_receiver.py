"""A receiver of lineage on loopback, which checks each event against OpenLineage's schema and answers as it is asked to."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Condition, Thread
from typing import Any

import jsonschema
from referencing import Registry, Resource

PUBLISHED = "OPENLINEAGE_SPEC"
"""Environment variable with the folder ``spec`` of OpenLineage's repository: events are checked against that, too."""

_FACET = {
    "type": "object",
    "required": ["_producer", "_schemaURL"],
    "properties": {"_producer": {"format": "uri"}, "_schemaURL": {"format": "uri"}},
}


def _facet(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    """Return the schema of a facet that has no other properties than these."""
    own = {"_producer": {}, "_schemaURL": {}} | properties
    return {"allOf": [_FACET], "required": list(required), "properties": own, "additionalProperties": False}


def _object(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": properties, "additionalProperties": False}


_TEXT, _COUNT = {"type": "string", "minLength": 1}, {"type": "integer", "minimum": 0}
_FIELD = _object("name", name=_TEXT, type=_TEXT, fields={"type": "array", "items": {"$ref": "#/$defs/field"}})
_LINK = _object("namespace", "name", "type", namespace=_TEXT, name=_TEXT, type=_TEXT)
_INPUT = _object("namespace", "name", "field", namespace=_TEXT, name=_TEXT, field=_TEXT)
_DERIVED = {
    "type": "object",
    "additionalProperties": _object("inputFields", inputFields={"type": "array", "minItems": 1, "items": _INPUT}),
}
_DATASET_FACETS = _object(
    schema=_facet(("fields",), fields={"type": "array", "items": {"$ref": "#/$defs/field"}}),
    symlinks=_facet(("identifiers",), identifiers={"type": "array", "items": _LINK}),
    columnLineage=_facet(("fields",), fields=_DERIVED),
)
_STATISTICS = _facet(("rowCount",), rowCount=_COUNT)


def _dataset(side: str) -> dict[str, Any]:
    own = {f"{side}Facets": _object(**{f"{side}Statistics": _STATISTICS})}
    return _object("namespace", "name", namespace=_TEXT, name=_TEXT, facets=_DATASET_FACETS, **own)


SCHEMA = {
    "$defs": {"field": _FIELD},
    **_object(
        *("eventTime", "eventType", "producer", "schemaURL", "run", "job", "inputs", "outputs"),
        eventTime={"type": "string", "format": "date-time", "pattern": "Z$"},
        eventType={"enum": ["START", "RUNNING", "COMPLETE", "ABORT", "FAIL"]},
        producer={"format": "uri"},
        schemaURL={"const": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"},
        run=_object(
            *("runId", "facets"),
            runId={"format": "uuid"},
            facets=_object(
                "processing_engine",
                processing_engine=_facet(("version",), version=_TEXT, name=_TEXT, openlineageAdapterVersion=_TEXT),
                errorMessage=_facet(("message", "programmingLanguage"), message=_TEXT, programmingLanguage=_TEXT),
            ),
        ),
        job=_object(
            *("namespace", "name", "facets"),
            namespace=_TEXT,
            name=_TEXT,
            facets=_object(
                "jobType",
                jobType=_facet(
                    ("processingType", "integration"), processingType=_TEXT, integration=_TEXT, jobType=_TEXT
                ),
                sql=_facet(("query",), query=_TEXT, dialect=_TEXT),
            ),
        ),
        inputs={"type": "array", "items": _dataset("input")},
        outputs={"type": "array", "items": _dataset("output")},
    ),
}
"""What OpenLineage 2-0-2 says of the parts that events of Millrace have, and that they have no others."""


def check_event(event: dict[str, Any]) -> None:
    """Check an event. Raises jsonschema.ValidationError."""
    formats = jsonschema.FormatChecker()
    jsonschema.Draft202012Validator(SCHEMA, format_checker=formats).validate(event)
    if folder := os.environ.get(PUBLISHED):
        _check_published(event, Path(folder), formats)


def _check_published(event: dict[str, Any], folder: Path, formats: jsonschema.FormatChecker) -> None:
    files = [folder / "OpenLineage.json", *folder.glob("facets/*.json")]
    schemas = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    registry: Registry[Any] = Registry().with_resources((each["$id"], Resource.from_contents(each)) for each in schemas)
    facets = [event["run"]["facets"], event["job"]["facets"]]
    for dataset in (*event["inputs"], *event["outputs"]):
        facets += [dataset["facets"], dataset.get("inputFacets", {}), dataset.get("outputFacets", {})]
    for value, url in [(event, event["schemaURL"])] + [(f, f["_schemaURL"]) for each in facets for f in each.values()]:
        jsonschema.Draft202012Validator({"$ref": url}, registry=registry, format_checker=formats).validate(value)


class Receiver:
    """The receiver: ``statuses`` are its next answers, and then 201; ``delay`` is how long it takes, in seconds."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.delay = 0.0
        self.events: list[dict[str, Any]] = []
        self.requests: list[tuple[str, str | None]] = []
        """Path and authorization of all requests."""
        self.wrong: list[str] = []
        self._changed = Condition()
        self.url = ""

    @property
    def states(self) -> list[str]:
        """What has become of the run, by the events that were taken."""
        return [event["eventType"] for event in self.events]

    def wait(self, events: int, seconds: float = 60.0) -> None:
        """Wait for so many events."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.events) >= events, seconds), self.states

    def take(self, path: str, authorization: str | None, body: bytes) -> int:
        """Return the status of the answer to a request."""
        time.sleep(self.delay)
        with self._changed:
            self.requests.append((path, authorization))
            status = self.statuses.pop(0) if self.statuses else 201
            if status == 201:
                event = json.loads(body)
                try:
                    check_event(event)
                except jsonschema.ValidationError as error:
                    self.wrong.append(str(error))
                self.events.append(event)
            self._changed.notify_all()
            return status


@contextmanager
def receiver() -> Iterator[Receiver]:
    """Run a receiver on loopback."""
    found = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = found.take(self.path, self.headers["Authorization"], body)
            self.send_response(status)
            if status in (301, 302, 307, 308):
                self.send_header("Location", f"{found.url}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found.url = f"http://127.0.0.1:{server.server_address[1]}/api/v1/lineage"
        thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()
    assert found.wrong == []
