"""JSON of the API server, bounded in depth and in bytes before anything of it is kept: see ``decode_bounded``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from millrace_api.crd import GROUP

from ..lifecycle.objects.object_sizes import (
    LARGEST_OBJECT,
    LARGEST_QUERY,
    MOST_VALUES,
    MOST_VALUES_OF_QUERY,
    OUR_LABELS,
    TOO_LARGE,
    TOO_MANY_VALUES,
    Bytes,
    values_in,
    within_texts,
)
from ..resources.names import MANAGER

LEVELS = 100
"""Levels that are kept of JSON that is nested too deeply to be decoded; an object of a known kind has fewer."""

TOO_DEEP = "(nested too deeply)"
"""Text in the place of what is nested deeper."""

_SMALL = 64 << 10
"""Bytes of JSON that is decoded as it is if it has few values, too."""

_LARGEST_FIELD = 16 << 10
"""Bytes of a field of the metadata that is kept of an object that is too large."""

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""Annotation of ``kubectl apply`` with a copy of the whole object."""

Fields = dict[str, msgspec.Raw]


def decode_bounded(document: bytes) -> Any:
    """Decode a JSON document of any depth, or one with objects of Kubernetes of any size.

    What is nested too deeply is replaced, and only what identifies an object is decoded where it is too large.

    A pod template may have any fields, so its author chooses how deeply and how widely an object is nested. The API
    server accepts ten thousand levels, and Python's decoder about a thousand: one such object would end every watch and
    list that contains it. It also accepts 1.5 MB, of which Python can make forty times as many.

    Raises:
        ValueError: it is no JSON.
    """
    if len(document) <= _SMALL and _at_most(document) <= MOST_VALUES_OF_QUERY:
        try:
            return msgspec.json.decode(document)
        except RecursionError:
            return json.loads(shallow(document))
        except msgspec.DecodeError:  # NaN, or a number that is not finite
            return json.loads(document)
    try:
        return _bounded(document)
    except RecursionError:
        return _bounded(shallow(document))
    except msgspec.DecodeError:  # it is no object, no list of them and no event, or no JSON
        return json.loads(document)


def _at_most(text: bytes) -> int:
    """Return a number of values that a JSON document does not exceed."""
    return sum(map(text.count, (b",", b"[", b"{")))


def _bounded(text: bytes) -> Any:
    """Return a list, an event or an object of Kubernetes, each of whose objects is bounded; else the whole document."""
    document = msgspec.json.decode(text, type=Fields)
    if "items" in document:
        kind = msgspec.json.decode(document.get("kind", msgspec.Raw(b'""')))
        items = msgspec.json.decode(document.pop("items"), type=list[msgspec.Raw])
        rest = {name: msgspec.json.decode(raw) for name, raw in document.items()}
        return rest | {"items": [_object(item, str(kind).removesuffix("List")) for item in items]}
    if document.keys() == {"type", "object"}:
        return {"type": msgspec.json.decode(document["type"]), "object": _object(document["object"])}
    return _object(msgspec.Raw(text))


def _object(text: msgspec.Raw, kind: str = "") -> Any:
    content = bytes(text)
    if len(content) <= _SMALL and _at_most(content) <= MOST_VALUES_OF_QUERY:
        return msgspec.json.decode(content)  # as if it had come alone
    fields = msgspec.json.decode(text, type=Fields)
    if "metadata" not in fields:
        return msgspec.json.decode(text)
    metadata = msgspec.json.decode(fields.pop("metadata"), type=Fields)
    managed = metadata.pop("managedFields", None)
    if _size(metadata, "annotations") > _LARGEST_FIELD:
        metadata["annotations"] = _chosen(metadata["annotations"], lambda name: name != _LAST_APPLIED)
    kind = msgspec.json.decode(fields["kind"]) if "kind" in fields else kind
    size = sum(_size(part, name) for part in (metadata, fields) for name in part)
    is_query = kind == "StreamQuery"
    most = MOST_VALUES_OF_QUERY if is_query else MOST_VALUES
    values = _values((*metadata.values(), *fields.values()), most)
    if size > (LARGEST_QUERY if is_query else LARGEST_OBJECT):
        why = {TOO_LARGE: size}
    elif values > most:
        why = {TOO_MANY_VALUES: values}
    else:
        if managed is not None:
            metadata["managedFields"] = _applied(managed)
        return {"metadata": _decoded(metadata)} | _decoded(fields)
    if _size(metadata, "annotations") > _LARGEST_FIELD:
        metadata["annotations"] = _chosen(metadata["annotations"], lambda name: name.startswith(f"{GROUP}/"))
    if _size(metadata, "labels") > _LARGEST_FIELD:
        metadata["labels"] = _chosen(metadata["labels"], OUR_LABELS.__contains__)
    known = {name: raw for name, raw in fields.items() if name in ("apiVersion", "kind", "status")}
    kept = (
        {name: raw for name, raw in part.items() if _size(part, name) <= _LARGEST_FIELD} for part in (metadata, known)
    )
    metadata, known = kept
    return {"metadata": _decoded(metadata), **why} | _decoded(known)


class _ManagedFields(msgspec.Struct):
    """What says whose an entry of managed fields is."""

    manager: str = ""
    operation: str = ""


def _applied(entries: msgspec.Raw) -> msgspec.Raw:
    """Return the entries of managed fields that the operator has applied, unless they are too large."""
    small = (raw for raw in msgspec.json.decode(entries, type=list[msgspec.Raw]) if len(bytes(raw)) <= _LARGEST_FIELD)
    ours = [raw for raw in small if msgspec.json.decode(raw, type=_ManagedFields) == _ManagedFields(MANAGER, "Apply")]
    return msgspec.Raw(msgspec.json.encode(ours))


def _values(parts: Sequence[msgspec.Raw], most: int) -> int:
    """Return the number of values in all parts together; more than there are if those are at most ``most``, too."""
    few = most // len(parts)
    found = [values_in(bytes(raw), few) for raw in parts]
    return sum(found) if sum(found) <= most else sum(values_in(bytes(raw)) for raw in parts)


def _size(fields: Fields, name: str) -> int:
    return len(bytes(fields[name])) if name in fields else 0


def _chosen(text: msgspec.Raw, choose: Callable[[str], bool]) -> msgspec.Raw:
    entries = msgspec.json.decode(text, type=Fields)
    return msgspec.Raw(msgspec.json.encode({name: raw for name, raw in entries.items() if choose(name)}))


def _decoded(fields: Mapping[str, msgspec.Raw]) -> dict[str, Any]:
    return {name: msgspec.json.decode(raw) for name, raw in fields.items()}


def shallow(data: bytes) -> bytes:
    """Return a JSON document with ``TOO_DEEP`` in the place of each list or object below ``LEVELS`` levels."""
    level = _levels(np.frombuffer(data, np.uint8))
    is_deep = level > LEVELS
    edges = np.flatnonzero(np.diff(is_deep, prepend=False, append=False)).tolist()
    parts, kept = [], 0
    for start, end in zip(edges[::2], edges[1::2], strict=True):
        parts += [data[kept:start], json.dumps(TOO_DEEP).encode()]
        kept = end + 1  # behind the closing bracket, which is on the level above
    return b"".join((*parts, data[kept:]))


def _levels(data: Bytes) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """Return for each byte of a JSON document on which level it is, an opening bracket on that of its content."""
    is_text = within_texts(data)
    opens = ((data == ord("{")) | (data == ord("["))) & ~is_text
    closes = ((data == ord("}")) | (data == ord("]"))) & ~is_text
    return np.cumsum(opens.astype(np.int32) - closes.astype(np.int32), dtype=np.int32)
