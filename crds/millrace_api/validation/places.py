"""The places that a query names: paths of files and folders, and the URI of its checkpoint.

A path is taken as it is written. It has no scheme, ``~`` or variable that anything would expand, so a path that seems
to have one would name a folder that its author did not mean, such as ``./s3a:/lake``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from millrace_api.errors import quote
from millrace_api.model.externals import ExternalKind, given

if TYPE_CHECKING:  # tasks import this module, and the models of a query take a third of a second of a core
    from millrace_api.model.streamquery import Spec

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_FILE = re.compile(r"file:(?://(?=/)|(?!//))(/[^?#]*)", re.IGNORECASE)
"""A URI without a host, a query and a fragment."""

_PART = r"(?!\.{1,2}(?:/|$))[A-Za-z0-9._-]+"
_BUCKET = r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"
_CONTAINER = r"[a-z0-9](?:-?[a-z0-9]){2,62}@[a-z0-9]{3,24}\.blob\.core\.windows\.net"
_PREFIX = rf"{_PART}(?:/{_PART})*/?"
_OBJECTS = re.compile(rf"(?:(s3a)://({_BUCKET})|(abfss)://({_CONTAINER}))/({_PREFIX})")
"""A prefix in an object store, without ``.`` and ``..``, of characters that are the same in keys, paths and URIs."""

_OBJECT_FILES = re.compile(r"s3a://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](?:/(?!\.{1,2}(?:/|$))[^/\x00-\x1f\x7f$~]+)+/?")
"""Data in an object store: keys may have nearly all characters, but none by which a path would be expanded."""

_HOLDS_RESULTS = re.compile(r"spec\.(?:(?:additionalOutputs\.[^.]+\.)?sink\.[^.]+|eventLog)\.path")
_HOLDS_DATA = re.compile(rf"spec\.sources\.[^.]+\.files\.path|{_HOLDS_RESULTS.pattern}")
"""Fields of paths that may be in an object store."""

_NO_PREFIX = "is not a bucket and a prefix of letters, digits, points, hyphens and underscores"

_VARIABLE = re.compile(r"\$([A-Z_][A-Z0-9_]*\b|\{[^/}]*\}?)")
"""A variable of a shell; ``Outer$Inner`` has none."""

_NAME_BYTES = 255
"""Longest name of a file or folder, in bytes of UTF-8: the limit of the usual file systems."""

_PLAIN = "write the path of a mounted folder, such as /data/revenue"


def paths(spec: Spec) -> Iterator[tuple[str, str]]:
    """Yield the paths of all files and folders that are read and written, each with its field; not the checkpoint."""
    for each in given(spec, "spec", ExternalKind.FILES, ExternalKind.DATA, ExternalKind.TABLES):
        if each.kind is not ExternalKind.TABLES or not is_object(each.value):
            yield each.field, each.value


def table_uris(spec: Spec) -> Iterator[tuple[str, str]]:
    """Yield the places in object stores that tables are read from and written to, each with its field."""
    tables = given(spec, "spec", ExternalKind.TABLES)
    return ((each.field, each.value) for each in tables if is_object(each.value))


def path_problem(path: str) -> tuple[str, str] | None:
    """Return what is wrong with a path as it is written, and what to write instead; None if it can be used.

    The message does not repeat an address, which may have a password in it.
    """
    if scheme := _SCHEME.match(path):
        if (folder := folder_of(path)) is not None:
            return "is a URI, and a path is written without a scheme", f"write {folder}"
        return f"the scheme {scheme[1]}: is not supported", f"{_PLAIN}, or ./{scheme[1]}:/... for a folder of this name"
    return _expandable(path) or _impossible(path)


def _expandable(path: str) -> tuple[str, str] | None:
    """Return what is wrong with a path that has ``~`` or a variable in a name that does not follow ``./``."""
    parts = path.split("/")
    for index, part in enumerate(parts):
        variable = _VARIABLE.search(part)
        if index and parts[index - 1] == ".":
            continue
        if variable or (part.startswith("~") and not index):
            what = f"has the variable {variable[0]}" if variable else "begins with ~"
            literal = "/".join([*parts[:index], ".", *parts[index:]])
            hint = f"write the path in full, or {quote(literal)} for a folder of this name"
            return f"{quote(path)} {what}, which is not expanded", hint
    return None


def _impossible(path: str) -> tuple[str, str] | None:
    if "\0" in path:
        return f"{path!r} has a NUL character, which no path can have", "leave it out"
    if re.search("[\ud800-\udfff]", path):
        return f"{path!a} is not UTF-8", "rename the folder, or write another one"
    longest = max((len(os.fsencode(name)), name) for name in path.split("/"))
    if longest[0] > _NAME_BYTES:
        message = f"has the name {quote(longest[1])} of {longest[0]} bytes, and a file system allows {_NAME_BYTES}"
        return message, "write a shorter one"
    return None


def uri_problem(uri: str) -> tuple[str, str] | None:
    """Return what is wrong with the URI of a checkpoint, and what to write instead; None if it can be used."""
    folder = folder_of(uri)
    if folder is not None:
        return _impossible(folder)
    if bucket_and_prefix(uri) is not None:
        return None
    scheme = uri.partition(":")[0]
    if scheme.lower() == "s3a":
        return _NO_PREFIX, "write s3a://BUCKET/PREFIX, such as s3a://lake/checkpoints/trips"
    if scheme.lower() == "abfss":
        hint = (
            "write abfss://CONTAINER@ACCOUNT.blob.core.windows.net/PREFIX: an account without a hierarchical namespace"
        )
        return "is not a container at the blob endpoint of a storage account, and a prefix", hint
    if scheme.lower() != "file":
        hint = "write s3a:// with a bucket and a prefix, or file:// and a folder, such as file:///data/checkpoints"
        return f"the scheme {scheme}: is not supported", hint
    message = "has a host, a query or a fragment, which are no part of a folder's path"
    return message, "write file:/// and the path, with %3F for ? and %23 for #"


def elsewhere(snapshot: str, checkpoint: str | None) -> tuple[str, str] | None:
    """Return what is wrong with a snapshot that is in another kind of place than its checkpoint is to be, or None.

    A checkpoint without a URI is in a folder. One login reads and writes both.
    """
    if _store(snapshot) == _store(checkpoint or ""):
        return None
    hint = "write both in folders or in one store, or make the checkpoint of it by millrace snapshot restore"
    return f"{quote(snapshot, 200)} is not in the store of the checkpoint", hint


def _store(uri: str) -> str:
    """Return the store of a URI: a scheme, of Azure with the account, and nothing for a folder."""
    found = bucket_and_prefix(uri)
    return "" if found is None else found[0] if found[0] == "s3a" else found[1].partition("@")[2]


def table_uri_problem(uri: str) -> tuple[str, str] | None:
    """Return what is wrong with the place of a table in an object store; None if it can be used."""
    if bucket_and_prefix(uri) is not None:
        return None
    return f"{quote(uri)} {_NO_PREFIX}", "write s3a://BUCKET/PREFIX, such as s3a://lake/trips"


def bucket_and_prefix(uri: str) -> tuple[str, str, str] | None:
    """Return scheme, bucket and prefix of a URI of an object store; None for any other URI.

    In Azure, the bucket is a container with the host of its storage account, as the URI has them.
    """
    found = _OBJECTS.fullmatch(uri)
    return None if found is None else (found[1] or found[3], found[2] or found[4], found[5].rstrip("/"))


def is_object(path: str) -> bool:
    """Return whether a path of data is in an object store, such as ``s3a://lake/events/*.json``."""
    return path.startswith("s3a://")


def may_be_object(field: str, path: str) -> bool:
    """Return whether a path is in an object store, and its field one that may name such a place."""
    return is_object(path) and _HOLDS_DATA.fullmatch(field) is not None


def object_problem(path: str, field: str = "") -> tuple[str, str] | None:
    """Return what is wrong with a path of data in an object store, and what to write instead; None if nothing is.

    ``field`` is that of the path, if it matters: results need a prefix, and a source may name a pattern.
    """
    if _HOLDS_RESULTS.fullmatch(field) is not None:
        if bucket_and_prefix(path) is not None:
            return None
        return f"{quote(path)} {_NO_PREFIX}", "write s3a://BUCKET/PREFIX, such as s3a://lake/results"
    if _OBJECT_FILES.fullmatch(path) is not None:
        return None
    hint = "write a bucket and the key of an object, a folder or a glob pattern, such as s3a://lake/events/*.json"
    return f"{quote(path)} is not a place in an object store", hint


def folder_of(uri: str) -> str | None:
    """Return the absolute path that a ``file:`` URI names; None for any other URI.

    Percent-encoded bytes that are not UTF-8 become what Python's functions on files take for them.
    """
    found = _FILE.fullmatch(uri)
    return None if found is None else os.fsdecode(unquote_to_bytes(found[1]))
