"""A probe shows that a field takes effect: documents that differ in it alone, and an outcome in which all differ.

The outcome is what real code makes of the query. It must never be the spec itself, nor anything that holds all of it,
such as the document that the operator mounts for the driver, or the hash of a revision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from millrace_api.errors import MillraceError
from millrace_api.model.streamquery import StreamQuery
from millrace_api.validation.loading import read_query

ABSENT = object()
"""The value of a field that is left out."""

Document = Mapping[str, Any]
See = Callable[[StreamQuery], object]
"""Returns what the product makes of a query, as plain values that can be compared."""


@dataclass(frozen=True)
class Probe:
    """Values of one field, and where each of them leads to another outcome.

    Attributes:
        field: the path of the field, as ``walk`` writes it.
        base: the document that the values are written into; it has one name, or entry, for each ``*`` and ``[]``.
        values: two values or more.
        see: the outcome; a value that is refused has none.
        read: reads a document; raises MillraceError if it is refused.
        one_fits: whether only one value is taken with the rest of the document, as that of a digest with its file.
    """

    field: str
    base: Document
    values: tuple[Any, ...]
    see: Callable[[Any], object]
    read: Callable[[Document], object] = read_query
    one_fits: bool = False

    @property
    def accepted(self) -> list[Any]:
        """The values that are not refused."""
        return [value for value in self.values if self._outcome(value)[0]]

    @property
    def shows(self) -> bool:
        """Whether enough values are accepted: two, or one where the query cannot do without any, or none else fits."""
        accepted = self.accepted
        given = [value for value in accepted if value is not ABSENT]
        is_needed = ABSENT in self.values and ABSENT not in accepted
        return bool(given) and (len(accepted) > 1 or is_needed or self.one_fits)

    def failures(self) -> Iterator[str]:
        """Yield which of the values that are accepted make no difference, or another one each time."""
        outcomes = [(value, outcome) for value in self.values for taken, outcome in [self._outcome(value)] if taken]
        for value, outcome in outcomes[:1]:
            if self._outcome(value) != (True, outcome):
                yield f"{self.field}: the outcome is another one each time: {outcome}"
        for i, (value, outcome) in enumerate(outcomes):
            for other, same in outcomes[:i]:
                if outcome == same:
                    yield f"{self.field}: {other!r} and {value!r} make no difference: {outcome}"

    def _outcome(self, value: Any) -> tuple[bool, object]:
        """Return whether a value is accepted, and its outcome or the reason why it is refused."""
        try:
            return True, self.see(self.read(written(self.base, self.field, value)))
        except MillraceError as error:
            return False, str(error)


def written(base: Document, field: str, value: Any) -> dict[str, Any]:
    """Return a copy of a document with the value at the path of a field."""
    document = deepcopy(dict(base))
    inner: Any = document
    *above, last = field.replace("[]", ".[]").split(".")
    for part in above:
        if part == "*":
            inner = next(iter(inner.values()))
        elif part == "[]":
            inner = inner[0]
        else:
            inner = inner.setdefault(part, {})
    inner.pop(last, None)
    if value is not ABSENT:
        inner[last] = value
    return document


def probes(base: Document, see: See, prefix: str = "", **values: Iterable[Any]) -> Iterator[Probe]:
    """Yield one probe for each field, named below ``prefix`` with ``__`` for a dot, over one base and outcome."""
    for name, each in values.items():
        yield Probe(f"{prefix}.{name.replace('__', '.')}" if prefix else name, base, tuple(each), see)
