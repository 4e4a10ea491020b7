"""What a spec names outside of its query: servers, places, files of secrets and identities.

A field declares it in its model, such as ``host: Annotated[Servers, External(ExternalKind.DATABASES, port=5432)]``.
Whoever has to know all of them, such as a policy of tenants, finds them by ``externals``. So they are known of a new
kind of source or sink by its model alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any, NamedTuple, get_args

from millrace_api.model.base import Model


class ExternalKind(StrEnum):
    """What a field names; servers, URLs and roles by the field of a policy that restricts them."""

    BROKERS = "brokers"
    DATABASES = "databases"
    CATALOGS = "catalogs"
    SCHEMA_REGISTRIES = "schema_registries"
    OIDC_ENDPOINTS = "token_endpoints"
    LINEAGE = "lineage"
    CODE = "code"
    CODE_CONFIG_MAPS = "code_config_maps"
    """A ConfigMap with code in the query's namespace."""
    CONNECTIONS = "connections"
    """A Connection in the query's namespace."""
    SECRETS = "secrets"
    """A Secret in the query's namespace."""
    S3_ENDPOINTS = "s3_endpoints"
    ROLE_ARNS = "role_arns"
    FILES = "files"
    """A path of a file or folder."""
    DATA = "data"
    """A path of records or results, or their place in an object store."""
    TABLES = "tables"
    """The folder of a table, or its place in an object store; without one, a catalog decides it."""
    LOGINS = "logins"
    """A file that holds a secret."""
    QUEUES = "queues"
    """A queue of a batch scheduler."""
    IDENTITIES = "identities"
    """A login with the identity that the pods have in a cloud."""
    CLIENT_OPTIONS = "client_options"
    """Options of a client by their names."""


@dataclass(frozen=True)
class External:
    """A declaration that a field names something outside of its query.

    Attributes:
        kind: what it names.
        port: of servers, host or host:port, separated by commas: the port of one that names none.
    """

    kind: ExternalKind
    port: int | None = None


class ExternalValue(NamedTuple):
    """What a spec names: the field, the value as it is written, None for one that is left out, and a server's port."""

    field: str
    kind: ExternalKind
    value: Any
    port: int | None = None

    @property
    def address(self) -> str:
        """The value; of a server, with its port."""
        if self.port is None:
            return str(self.value)
        server = self.value.strip()
        return server if re.search(":[0-9]+$", server) else f"{server}:{self.port}"


class _Field(NamedTuple):
    """A field of a model: its names in Python and YAML, what it declares, and whether models below it declare more."""

    name: str
    alias: str
    declared: External | None
    has_more: bool


def externals(part: Model, at: str, *kinds: ExternalKind) -> Iterator[ExternalValue]:
    """Yield what a part of a spec names outside of its query, of these kinds or of all; ``at`` is the part's field."""
    return _in_model(part, at, frozenset(kinds or ExternalKind))


def given(part: Model, at: str, *kinds: ExternalKind) -> Iterator[ExternalValue]:
    """Yield what a part of a spec names of these kinds, without fields that are left out."""
    return (each for each in externals(part, at, *kinds) if each.value is not None)


def _in_model(part: Model, at: str, kinds: frozenset[ExternalKind]) -> Iterator[ExternalValue]:
    for name, alias, declared, has_more in _fields(type(part), kinds):
        field, value = f"{at}.{alias}", getattr(part, name)
        if declared is not None:
            yield from _values(field, declared, value)
        if has_more:
            yield from _below(field, value, kinds)


def _values(field: str, declared: External, value: Any) -> Iterator[ExternalValue]:
    if declared.port is None or value is None:
        yield ExternalValue(field, declared.kind, value)
        return
    for server in filter(str.strip, value.split(",")):
        yield ExternalValue(field, declared.kind, server, declared.port)


def _below(field: str, value: Any, kinds: frozenset[ExternalKind]) -> Iterator[ExternalValue]:
    if isinstance(value, Model):
        yield from _in_model(value, field, kinds)
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _below(f"{field}.{key}", each, kinds)
    elif isinstance(value, tuple):
        for number, each in enumerate(value):
            yield from _below(f"{field}[{number}]", each, kinds)


@cache
def _fields(model: type[Model], kinds: frozenset[ExternalKind]) -> tuple[_Field, ...]:
    """Return the fields of a model that declare something of these kinds, also in models below them."""
    found = []
    for name, info in model.model_fields.items():
        declared = (each for each in info.metadata if isinstance(each, External) and each.kind in kinds)
        own = next(declared, None)
        has_more = any(_fields(each, kinds) for each in _models(info.annotation))
        if own is not None or has_more:
            found.append(_Field(name, info.serialization_alias or name, own, has_more))
    return tuple(found)


def _models(annotation: Any) -> Iterator[type[Model]]:
    """Yield the models that a field of this type can hold."""
    if isinstance(annotation, type) and issubclass(annotation, Model):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)
