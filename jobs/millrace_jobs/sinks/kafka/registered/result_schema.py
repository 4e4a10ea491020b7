"""The schema of results in a registry: found or registered before the first batch, or refused with what it says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark.sql.types import StructType

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.registries import ResultSchemas
from millrace_jobs.schemas.registry import RefusedSchemaError, RegistryCredentials, SchemaRegistry

Encode = Callable[[Mapping[str, Any]], bytes]
"""Returns a result, as Arrow gives it to Python, as bytes without framing; raises ValueError if it does not fit."""


class ResultFormat(Protocol):
    """A format of messages with a schema."""

    kind: str
    """The registry's name of the format."""

    def latest(self, registry: SchemaRegistry, subject: str, document: Mapping[str, Any]) -> Any:
        """Return the schema that is the latest version of a subject. Raises ValueError if it cannot be used."""
        ...

    def derived(self, columns: StructType, record: str, latest: Any | None) -> Any:
        """Return the schema of results, given the latest version of its subject."""
        ...

    def text(self, schema: Any) -> str:
        """Return a schema as it is registered."""
        ...

    def encoder(self, columns: StructType, record: str, schema: Any) -> tuple[bytes, Encode]:
        """Return what stands between id and value in the framing, and what encodes results by a schema.

        Raises:
            ValueError: results do not fit the schema.
        """
        ...


def record_name(query: str) -> str:
    """Return the name of a query's record, if its sink names none."""
    return "millrace." + "".join(part.capitalize() for part in query.replace(".", "-").split("-"))


@dataclass(frozen=True)
class ResultSchema:
    """Which schema the results of a query have in a registry.

    ``field`` is that of the sink's ``schemas``.
    """

    format: ResultFormat
    spec: ResultSchemas
    topic: str
    record: str
    columns: StructType
    field: str = "spec.sink.kafka.schemas"

    @property
    def subject(self) -> str:
        """The subject of the schema."""
        return self.spec.subject(self.topic, self.record)

    def registry(self) -> SchemaRegistry:
        """Return the registry. Raises MillraceError if its URL is none."""
        return SchemaRegistry(self.spec.registry, RegistryCredentials.of(self.spec.login), f"{self.field}.registry")

    def writer(self) -> Encode:
        """Return what encodes results with the registry's framing; register the schema, if the sink is to.

        Raises:
            MillraceError: the registry does not have the schema, or does not accept it, or results do not fit it.
            TransientError: the registry does not answer.
        """
        registry = self.registry()
        latest = registry.version(self.subject, "latest")
        try:
            schema = None if latest is None else self.format.latest(registry, self.subject, self._of_format(latest))
            if self.spec.register_schema:
                schema = self.format.derived(self.columns, self.record, schema)
                body = {"schema": self.format.text(schema), "schemaType": self.format.kind}
                number = self._registered(registry, body)
            elif latest is None:
                hint = "register a schema there, or write register: true"
                raise self._problem(f"the subject {self.subject} has no schema in the registry", hint)
            else:
                number = self._id(latest)
            between, encode = self.format.encoder(self.columns, self.record, schema)
        except ValueError as error:
            message = f"the results do not fit the schema of the subject {self.subject}: {error}"
            raise self._problem(message, "select columns with its names and types, or write another topic") from None
        frame = b"\0" + number.to_bytes(4, "big") + between
        return lambda row: frame + self._encoded(encode, row)

    def _of_format(self, latest: Mapping[str, Any]) -> Mapping[str, Any]:
        kind = latest.get("schemaType", "AVRO")
        if kind != self.format.kind:
            raise ValueError(f"it is {kind}, not {self.format.kind}")
        return latest

    def _registered(self, registry: SchemaRegistry, schema: dict[str, Any]) -> int:
        known = registry.registered(self.subject, schema)
        if known is not None:
            return known
        objections = registry.objections(self.subject, schema)
        if objections:
            raise self._incompatible(objections)
        try:
            return registry.register(self.subject, schema)
        except RefusedSchemaError as error:
            raise self._incompatible(str(error)) from None

    def _incompatible(self, said: str) -> MillraceError:
        message = f"the subject {self.subject} does not accept the schema of the results: {said}"
        hint = "keep the names and types of the columns that it has, or write another topic or record"
        return self._problem(message, f"{hint}, or change the compatibility of the subject")

    def _encoded(self, encode: Encode, row: Mapping[str, Any]) -> bytes:
        try:
            return encode(row)
        except ValueError as error:
            message = f"a result does not fit the schema of the subject {self.subject}: {error}"
            raise self._problem(message, "convert it in the SQL, or filter it out") from None

    def _id(self, latest: Mapping[str, Any]) -> int:
        number = latest.get("id")
        if not isinstance(number, int):
            raise self._problem(f"the registry's answer for the subject {self.subject} has no id", "check the registry")
        return number

    def _problem(self, message: str, hint: str) -> MillraceError:
        return MillraceError(Problem(message, hint, field=self.field))
