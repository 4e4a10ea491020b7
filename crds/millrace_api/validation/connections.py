"""References to Connections: a document as users write it becomes a resolved one, which models and drivers read.

A Kafka source, sink or table has ``connection: NAME``, or the address of brokers without a login. Resolving puts the
fields of the Connection beside its name, and its registry where messages name their schemas there. The models are those
of resolved documents, so whether a document is as users may write it is checked here, before they read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from millrace_api.errors import MillraceError, Problem, quote, suggest
from millrace_api.model.connections import ConnectionSpec
from millrace_api.model.kafka import KafkaReference
from millrace_api.model.streamquery import Spec
from millrace_api.validation.pydantic_errors import Location, dotted

Connections = Mapping[str, ConnectionSpec | MillraceError]
"""Connections by name; those that are not valid with their problems."""

Document = Mapping[str, Any]

REFERENCE: Final = "connection"
_UNKNOWN: Final = "unknown:9092"
"""Brokers in the place of those that are not known, so that the rest of the document can be checked."""

MOST_SUGGESTED: Final = 100
"""Names with which that of a missing Connection is compared, so that the nearest one is suggested."""

_OF_CONNECTION: Final = ("bootstrapServers", "tls", "sasl", "options")
_DESCRIPTORS: Final = {"avro": ("writerSchema",), "protobuf": ("descriptorFile", "descriptorSet"), "schemas": ()}
"""What describes messages without a registry, by the field that says how they are read or written."""

_OF_REGISTRY: Final = ("registry", "login")
_WRITE_ONE = "write it in a Connection, and connection: NAME here"


class ConnectionNotFoundError(MillraceError):
    """A query refers to a Connection that does not exist, or that is not valid."""


@dataclass(frozen=True)
class Finding:
    """What is wrong at a place of a document. ``missing`` says that a Connection is, which may come yet."""

    at: Location
    message: str
    hint: str
    missing: bool = False

    @property
    def problem(self) -> Problem:
        """The problem, with its field."""
        return Problem(self.message, self.hint, field=dotted(self.at))


@dataclass
class Resolution:
    """A resolved document, and what is wrong with the one that was written."""

    document: dict[str, Any]
    findings: list[Finding] = field(default_factory=list)

    def require(self) -> dict[str, Any]:
        """Return the document.

        Raises:
            ConnectionNotFoundError: a Connection is missing or not valid; nothing else is wrong.
            MillraceError: with all problems.
        """
        if self.findings:
            only_missing = all(each.missing for each in self.findings)
            kind = ConnectionNotFoundError if only_missing else MillraceError
            raise kind(*(each.problem for each in self.findings))
        return self.document


def references(document: Document) -> Iterator[tuple[Location, str]]:
    """Yield the references of a query's document to Connections, each with its place."""
    for at, holder, kind in _holders(document):
        name = holder[kind].get(REFERENCE)
        if isinstance(name, str):
            yield (*at, kind, REFERENCE), name


def resolve(document: Document, connections: Connections) -> Resolution:
    """Return the resolved form of a query's document as users write it. The document itself is not changed."""
    result = Resolution(dict(document))
    for at, holder, kind in _holders(document):
        found = _Holder(at, holder, kind, connections)
        result.findings += found.findings
        _put(result.document, at, found.resolved)
    return result


def used_connections(spec: Spec) -> dict[str, KafkaReference]:
    """Return what a resolved spec has of each Connection, by name."""
    sources = [source.kafka for source in spec.sources.values()]
    sinks = [output.sink.kafka or output.sink.table for output in spec.outputs.values()]
    return {each.connection: each for each in (*sources, *sinks) if each is not None and each.connection is not None}


def without_references(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the document of a resolved spec without the names of Connections: as drivers read it.

    What a driver does depends on the fields that a Connection resolves to, and images of earlier versions do not know
    its name.
    """
    document: dict[str, Any] = {"spec": spec}
    for at, holder, kind in _holders(document):
        _put(document, at, {**holder, kind: _without(holder[kind], REFERENCE)})
    return dict(document["spec"])


def reference_names(spec: dict[str, Any]) -> dict[str, str]:
    """Return the names of Connections that the document of a resolved spec has, by their fields."""
    return {dotted(at): name for at, name in references({"spec": spec})}


def with_references(spec: dict[str, Any], names: Document) -> dict[str, Any]:
    """Return the document of a resolved spec with these ``reference_names``: the reverse of ``without_references``."""
    document: dict[str, Any] = {"spec": spec}
    for at, holder, kind in _holders(document):
        if (name := names.get(dotted((*at, kind, REFERENCE)))) is not None:
            _put(document, at, {**holder, kind: {**holder[kind], REFERENCE: name}})
    return dict(document["spec"])


def as_written(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the document of a resolved spec with the names of Connections alone, as users write it."""
    document: dict[str, Any] = {"spec": spec}
    for at, holder, kind in _holders(document):
        if REFERENCE in holder[kind]:
            written = {**holder, kind: _without(holder[kind], *_OF_CONNECTION)}
            parent = written[kind] if at[-1] == "sink" else written
            for how in _DESCRIPTORS.keys() & parent.keys():
                parent[how] = _without(parent[how], *_OF_REGISTRY)
            _put(document, at, written)
    return dict(document["spec"])


def connection_parts(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what the document of a resolved spec has of each Connection, by name."""
    found: dict[str, dict[str, Any]] = {}
    for at, holder, kind in _holders({"spec": spec}):
        if (name := holder[kind].get(REFERENCE)) is None:
            continue
        parts = found.setdefault(name, dict.fromkeys(_OF_CONNECTION))
        parts |= {part: holder[kind][part] for part in _OF_CONNECTION if part in holder[kind]}
        parent = holder[kind] if at[-1] == "sink" else holder
        for how in _DESCRIPTORS.keys() & parent.keys():
            parts |= {part: parent[how].get(part) for part in _OF_REGISTRY if "registry" in parent[how]}
    return found


class _Holder:
    """A source or a sink in Kafka, and its resolved form."""

    def __init__(self, at: Location, holder: Document, kind: str, connections: Connections) -> None:
        self.findings: list[Finding] = []
        self._at, self._kind = at, kind
        written: Document = holder[kind]
        name = written.get(REFERENCE)
        kafka: dict[str, Any] | None = None
        if name is None:
            self._check_inline(written)
            resolved = dict(written)
        else:
            kafka = self._connection(name, connections)
            self._check_beside(written)
            resolved = _without(written, *_OF_CONNECTION) | {
                part: kafka[part] for part in _OF_CONNECTION if part in kafka
            }
        self.resolved = {**holder, kind: resolved}
        registry = (kafka or {}).get("registry")
        is_sink = at[-1] == "sink"
        parent, place = (resolved, (*at, kind)) if is_sink else (self.resolved, at)
        for how in ("schemas",) if is_sink else ("avro", "protobuf"):
            if isinstance(parent.get(how), Mapping):
                parent[how] = self._with_registry((*place, how), how, parent[how], name, registry)

    def _connection(self, name: Any, connections: Connections) -> dict[str, Any]:
        """Return the fields of a Connection; those of no real one if it is missing or not valid."""
        at = (*self._at, self._kind, REFERENCE)
        found = connections.get(name) if isinstance(name, str) else None
        if isinstance(found, ConnectionSpec):
            return found.kafka.to_short_document()
        if isinstance(found, MillraceError):
            first = found.problems[0]
            self.findings.append(Finding(at, f"Connection {quote(name)} is not valid: {first}", "", missing=True))
        else:
            hint = suggest(str(name), sorted(islice(connections, MOST_SUGGESTED)), _others(connections))
            self.findings.append(Finding(at, f"there is no Connection {quote(name)}", hint, missing=True))
        return {"bootstrapServers": _UNKNOWN, "registry": {"url": f"http://{_UNKNOWN}"}}

    def _check_inline(self, written: Document) -> None:
        for part in _OF_CONNECTION:
            if part in written and part != "bootstrapServers":
                self._misplaced((*self._at, self._kind, part))

    def _check_beside(self, written: Document) -> None:
        for part in _OF_CONNECTION:
            if part in written:
                message = f"{part} cannot be combined with connection, which has its own"
                self.findings.append(Finding((*self._at, self._kind, part), message, f"leave {part} or connection out"))

    def _with_registry(self, at: Location, how: str, written: Document, name: Any, registry: Any) -> Document:
        """Return how messages are read or written, with the registry of the connection where they need one."""
        for part in _OF_REGISTRY:
            if part in written:
                self._misplaced((*at, part))
        if any(part in written for part in _DESCRIPTORS[how]):
            return written
        if registry is not None:
            return {**written, "registry": registry["url"], **{k: v for k, v in registry.items() if k == "login"}}
        needs = "schemas are in a registry" + ("" if how == "schemas" else f" unless {how} has them")
        lacks = "there is no connection" if name is None else f"Connection {quote(name)} has no registry"
        hint = "write connection: NAME of a Connection that has kafka.registry"
        self.findings.append(Finding(at, f"{needs}, and {lacks}", hint))
        return {**written, "registry": f"http://{_UNKNOWN}"}

    def _misplaced(self, at: Location) -> None:
        if not any(each.at == at for each in self.findings):
            self.findings.append(Finding(at, f"{at[-1]} belongs to a Connection", _WRITE_ONE))


def _others(connections: Connections) -> str:
    if connections:
        return f"write one of {', '.join(sorted(islice(connections, MOST_SUGGESTED))[:10])}"
    return "create it, as in docs/connections.md, or write bootstrapServers for brokers without a login"


def _holders(document: Document) -> Iterator[tuple[Location, Document, str]]:
    """Yield each source and sink that is in Kafka, with its place and the field that says so."""
    spec = _mapping(document.get("spec"))
    for name, source in _mapping(spec.get("sources")).items():
        if isinstance(_mapping(source).get("kafka"), Mapping):
            yield ("spec", "sources", name), source, "kafka"
    outputs: dict[Location, Any] = {("spec",): spec}
    outputs |= {("spec", "additionalOutputs", name): it for name, it in _mapping(spec.get("additionalOutputs")).items()}
    for at, output in outputs.items():
        sink = _mapping(_mapping(output).get("sink"))
        for kind in ("kafka", "table"):
            if isinstance(sink.get(kind), Mapping):
                yield (*at, "sink"), sink, kind
                break  # of two kinds, one is refused


def _without(value: Document, *names: str) -> dict[str, Any]:
    return {name: part for name, part in value.items() if name not in names}


def _mapping(value: Any) -> Document:
    return value if isinstance(value, Mapping) else {}


def _put(document: dict[Any, Any], at: Location, value: Any) -> None:
    """Replace the value at a place, in copies of the mappings above it."""
    *above, last = at
    for step in above:
        document[step] = dict(document[step])
        document = document[step]
    document[last] = value
