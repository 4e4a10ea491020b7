"""The Connections that one query refers to, as last seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.connections import ConnectionSpec
from millrace_api.model.externals import ExternalKind, given
from millrace_api.validation.connections import Connections, references
from millrace_api.validation.loading import read_connection

from ...resources.manifests import to_json
from ..conditions import shortened
from ..objects.object_sizes import BYTES_OF_VALUE, TOO_LARGE, TOO_MANY_VALUES, values_in

if TYPE_CHECKING:
    from ..objects.kept_object import KeptObject

MOST_BYTES_OF_CONNECTIONS = 1 << 20
"""Bytes of the Connections of a namespace that are kept; further ones are not valid until there is room again."""

_LONGEST_BROKERS = 256
"""Characters of the brokers of a Connection that a status shows."""

Version = tuple[tuple[str, str, int], ...]
"""Name, uid and generation of each Connection that a query refers to; of a missing one, and of one not kept, no uid."""

_MISSING, _UNKNOWN = ("", 0), ("", -1)

_NOT_KEPT = MillraceError(
    Problem(
        f"the namespace has more Connections than the {MOST_BYTES_OF_CONNECTIONS >> 20} MiB that the operator keeps",
        "delete some",
    )
)
_TOO_LARGE = MillraceError(Problem("it is too large", "shorten its texts and annotations"))


class AddedSize(NamedTuple):
    """What a query takes more, at most, once its references are resolved: bytes of JSON, and values."""

    bytes: int = 0
    values: int = 0

    @property
    def counted(self) -> int:
        """The bytes that it counts, as those of an object that is kept."""
        return max(self.bytes, BYTES_OF_VALUE * self.values)


@dataclass(frozen=True)
class ReferredConnections:
    """The Connections of a query's namespace, as far as the query refers to them.

    Attributes:
        found: those that it refers to and that exist, by name; None if one is not kept.
        wanted: the names that it refers to.
        others: names of Connections of the namespace, as many as a message suggests from.
        now: returns any Connection of the namespace by its name; None if there is none, or if it is not kept.
    """

    found: Mapping[str, KeptObject | None] = field(default_factory=dict)
    wanted: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    now: Callable[[str], KeptObject | None] = field(default=lambda name: None, compare=False)

    @property
    def version(self) -> Version:
        """A value that changes when one of these Connections does: its spec, not its labels and annotations."""
        return tuple((name, *self._version_of(name)) for name in self.wanted)

    def _version_of(self, name: str) -> tuple[str, int]:
        found = self.found.get(name)
        if found is not None:
            return found.uid, found.generation
        return _UNKNOWN if name in self.found else _MISSING

    @property
    def not_kept(self) -> list[str]:
        """Names of those that exist and are not kept."""
        return [name for name, each in self.found.items() if each is None]

    def shown(self) -> list[tuple[str, int, str]]:
        """Return name, generation and brokers of each Connection that the query refers to and that exists."""
        kept = ((name, each) for name, each in self.found.items() if each is not None)
        return [(name, each.generation, shortened(brokers_in(each.body()), _LONGEST_BROKERS)) for name, each in kept]

    def secrets_of(self, name: str) -> frozenset[str]:
        """Return the names of the Secrets that any Connection of the namespace has now; none if it is not valid."""
        kept = self.now(name)
        found = None if kept is None else _read(kept)
        secrets = given(found, "spec", ExternalKind.SECRETS) if isinstance(found, ConnectionSpec) else ()
        return frozenset(each.value for each in secrets)

    def added_to(self, query: Mapping[str, Any]) -> AddedSize:
        """Return what a query's document takes more once each reference is replaced by what it leads to."""
        texts = {name: to_json(each.body().get("spec")).encode() for name, each in self.found.items() if each}
        sizes = {name: AddedSize(len(text), values_in(text)) for name, text in texts.items()}
        added = [sizes[name] for _, name in references(query) if name in sizes]
        return AddedSize(sum(each.bytes for each in added), sum(each.values for each in added))

    def read(self) -> Connections:
        """Return the Connections, each with what it leads to or with its problems."""
        return dict.fromkeys(self.others, _NOT_KEPT) | {name: _read(each) for name, each in self.found.items()}


def _read(kept: KeptObject | None) -> ConnectionSpec | MillraceError:
    if kept is None:
        return _NOT_KEPT
    body = kept.body()
    if TOO_LARGE in body or TOO_MANY_VALUES in body:
        return _TOO_LARGE
    try:
        return read_connection(body)
    except MillraceError as error:
        return type(error)(*error.problems[:1])  # without the traceback, which holds the whole document


def brokers_in(body: Mapping[str, Any]) -> str:
    """Return the brokers that a Connection names, unchecked; empty if it names none."""
    kafka = (body.get("spec") or {}).get("kafka") or {}
    return str(kafka.get("bootstrapServers", ""))
