"""What differs between two specs, in a line for each field, and whether both read the same records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.changes import CheckpointChange
from millrace_api.model.streamquery import StreamQuery
from millrace_api.validation.evolution import change_of, compare, differences

_SHOWN = 60
"""Characters of a value that are shown."""

_OTHER_RECORDS = frozenset({CheckpointChange.RECORDS, CheckpointChange.START})


def changed_fields(old: StreamQuery, new: StreamQuery) -> Iterator[str]:
    """Yield a line for each field that differs, and for SQL one for each part that does."""
    forbidden, remarks = compare(old, new)
    for field, before, now in differences(old.to_document(), new.to_document()):
        parts = [each.difference for each in forbidden if each.field == field]
        notes = [note.removeprefix(f"{field}: ") for note in remarks if note.startswith(f"{field}: ")]
        if change_of(field) is CheckpointChange.SQL and (parts or notes):
            yield from (f"{field}: {_in_both(text)}" for text in parts)
            yield from (f"{field}: {text}" for text in notes)
        elif change_of(field) is CheckpointChange.SQL:
            yield f"{field}: another text, with the same groups and aggregates"
        else:
            yield f"{field}: {_shown(now)}, and was {_shown(before)}"


def _in_both(difference: str) -> str:
    """Return a difference of SQL, which is "with A, not with B", as a sentence of both versions."""
    old, _, new = difference.removeprefix("with ").partition(", not with ")
    return f"the old version has {old}; the new one has {new}"


def require_same_records(old: StreamQuery, new: StreamQuery) -> None:
    """Check that both versions read the same sources. Raises MillraceError if one does not exist, or is another."""
    streams = [{n for n, source in each.spec.sources.items() if not source.is_static} for each in (old, new)]
    for name in sorted(streams[0] ^ streams[1]):
        version = "new" if name in streams[0] else "old"
        raise _other_records(f"spec.sources.{name}", f"the {version} version has no stream {name}")
    for field, before, now in differences(old.to_document(), new.to_document()):
        parts = field.split(".")
        if parts[:2] == ["spec", "sources"] and change_of(field) in _OTHER_RECORDS and parts[2] in streams[0]:
            raise _other_records(field, f"the new version reads {_shown(now)}, and the old one {_shown(before)}")


def _other_records(field: str, message: str) -> MillraceError:
    hint = "compare two versions that read the same records, one change after the other"
    return MillraceError(Problem(message, hint, field=field))


def _shown(value: Any) -> str:
    if value is None or value == {}:
        return "not given"
    text = str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
