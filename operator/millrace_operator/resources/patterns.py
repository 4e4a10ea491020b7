"""Patterns in an administrator's policy, and the canonical forms of the values that they match.

``*`` stands for any characters within a part, never for ``/``; ``**`` as the last part stands for everything below. A
value is compared part by part, in a canonical form: ``registry.example.com/**`` matches nothing of
``registry.example.com.evil.com``, and a value that has no canonical form, such as ``registry.example.com/../x``,
matches no pattern.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from posixpath import normpath
from typing import Annotated

from millrace_api.model.values import text
from millrace_api.validation.places import bucket_and_prefix, folder_of, is_object, object_problem

_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*"
_PORT = r":[0-9]{1,5}"
_TAG = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:(?P<registry>{_HOST}(?:{_PORT})?)/)?(?P<path>{_COMPONENT}(?:/{_COMPONENT})*)"
    rf"(?::{_TAG})?(?:@[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[0-9a-fA-F]{{32,}})?"
)
"""An image by the grammar of the container runtimes (github.com/distribution/reference)."""

_SERVER = re.compile(rf"(?P<host>{_HOST})(?P<port>{_PORT})")

_LABEL = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_NAMED = rf"{_LABEL}(?:\.{_LABEL})*"
_ANY_HOST = rf"(?:\*\.)?{_NAMED}"
_REGISTRY = rf"(?:(?:\*\.{_NAMED}|{_LABEL}(?:\.{_LABEL})+|localhost)(?:{_PORT})?|{_LABEL}{_PORT})"
"""A host that cannot be the first part of a path: it has a dot or a port, or is localhost."""


def _below(first: str, others: str) -> str:
    """Return the expression of a pattern's parts, whose characters are of these classes. Helm reads it, too: by RE2."""
    part = rf"(?:\*|(?:\*{others}|{first})(?:\*?{others})*\*?)"
    return rf"(?:(?:/{part})+(?:/\*\*)?|/\*\*)"


_FOLDERS = _below(r"[^/*?\[\].\n]", r"[^/*?\[\]\n]")
_BUCKET = r"[a-z0-9*][a-z0-9.*-]{0,62}"
_CONTAINER = r"[a-z0-9*][a-z0-9*-]{0,62}@[a-z0-9*]{1,24}\.blob\.core\.windows\.net"
_REPOSITORY = _below("[a-z0-9]", "[a-z0-9._-]")
_ROLE = _below("[A-Za-z0-9+=,.@_-]", "[A-Za-z0-9+=,.@_-]")

NamePattern = Annotated[
    str, *text(r"[A-Za-z0-9.*-]+", 253, "a pattern of names", "write a name, in which * stands for any characters")
]
QueuePattern = Annotated[
    str, *text(r"[A-Za-z0-9._*-]+", 63, "a pattern of queues", "write a name, in which * stands for any characters")
]
RolePattern = Annotated[
    str,
    *text(
        rf"arn:aws[a-z-]*:iam::[0-9]{{12}}:role{_ROLE}",
        1024,
        "a pattern of IAM roles",
        "write an ARN with its account, such as arn:aws:iam::123456789012:role/streams-*",
    ),
]
SettingPattern = Annotated[
    str,
    *text(
        r"[A-Za-z0-9._*-]+",
        512,
        "a pattern of settings",
        "write the name of a setting, in which * stands for any characters, such as spark.sql.*",
    ),
]
LabelPattern = Annotated[
    str,
    *text(
        r"[A-Za-z0-9._*-]+",
        63,
        "a pattern of values of a label",
        "write a value, in which * stands for any characters, such as payments-*",
    ),
]
ImagePattern = Annotated[
    str,
    *text(
        rf"{_REGISTRY}{_REPOSITORY}",
        512,
        "a pattern of images",
        "write registry and repository without tag, such as registry.example.com/streams/**, or "
        "docker.io/library/millrace-jobs for an image that names no registry",
    ),
]
BrokerPattern = Annotated[
    str,
    *text(
        rf"{_ANY_HOST}(?:{_PORT}|:\*)",
        512,
        "a pattern of Kafka brokers",
        "write host:port, such as kafka.example.com:9092, *.kafka.example.com:9092 or kafka:*",
    ),
]
DatabasePattern = Annotated[
    str,
    *text(
        rf"{_ANY_HOST}(?:{_PORT}|:\*)",
        512,
        "a pattern of database servers",
        "write host:port, such as db.example.com:5432, *.db.example.com:5432 or db:*",
    ),
]
PathPattern = Annotated[
    str,
    *text(
        rf"{_FOLDERS}|s3a://{_BUCKET}{_FOLDERS}",
        2048,
        "a pattern of paths",
        "write an absolute path, such as /data/orders/*.json, /data/** for everything below, or s3a://lake/orders/**",
    ),
]
CheckpointPattern = Annotated[
    str,
    *text(
        rf"file://{_FOLDERS}|s3a://{_BUCKET}{_FOLDERS}|abfss://{_CONTAINER}{_FOLDERS}",
        2048,
        "a pattern of checkpoints",
        "write file:// and an absolute path, or s3a:// with a bucket, or abfss:// with container and "
        "account, and a prefix, such as file:///mnt/checkpoints/** or s3a://lake/team-a/**",
    ),
]
TablePattern = Annotated[
    str,
    *text(
        rf"s3a://[a-z0-9][a-z0-9.-]{{1,61}}[a-z0-9]{_FOLDERS}",
        2048,
        "a pattern of tables in an object store",
        "write s3a:// with a bucket and a prefix, such as s3a://lake/team-a/**",
    ),
]
UrlPattern = Annotated[
    str,
    *text(
        rf"https?://{_ANY_HOST}(?:{_PORT})?(?:{_FOLDERS})?",
        2048,
        "a pattern of URLs",
        "write scheme, host and path, such as https://schemas.example.com/**",
    ),
]
CatalogPattern = Annotated[
    str,
    *text(
        rf"https?://{_ANY_HOST}(?:{_PORT})?(?:{_FOLDERS})?|thrift://{_ANY_HOST}(?:{_PORT}|:\*)",
        2048,
        "a pattern of catalogs",
        "write scheme, host and path, or the host and port of a Hive metastore, such as https://catalog.example.com/** "
        "or thrift://metastore.example.com:9083",
    ),
]

CodePattern = Annotated[
    str,
    *text(
        rf"https?://{_ANY_HOST}(?:{_PORT})?{_FOLDERS}|s3a://[a-z0-9][a-z0-9.-]{{1,61}}[a-z0-9]{_FOLDERS}",
        2048,
        "a pattern of URIs of code",
        "write scheme, host and path, or a bucket and a prefix, such as https://code.example.com/releases/** or "
        "s3a://code/team-a/**",
    ),
]


def matches(pattern: str, value: str) -> bool:
    """Return whether a pattern matches a value in its canonical form."""
    wanted, given = pattern.split("/"), value.split("/")
    if wanted[-1] == "**":
        wanted, given = wanted[:-1], given[: len(wanted) - 1]
    return len(wanted) == len(given) and all(
        each == part or (_matches_more(each, part) and _part(each).fullmatch(part) is not None)
        for each, part in zip(wanted, given, strict=True)
    )


def _matches_more(wanted: str, given: str) -> bool:
    """Return whether a part of a pattern may match another part than itself, which in a path can be a pattern, too.

    There ``**`` stands for any number of folders, which is more than one part, and brackets are no text that a file's
    name has.
    """
    return given != "**" and (wanted == "*" or "[" not in given)


def matches_any(patterns: Iterable[str], value: str | None) -> bool:
    """Return whether any of these patterns matches a value; one without a canonical form matches none."""
    return value is not None and any(matches(pattern, value) for pattern in patterns)


@lru_cache(maxsize=1024)
def _part(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)


def image_repository(image: str) -> str | None:
    """Return registry and repository of an image, as a container runtime completes them; None if it is not an image.

    An image without a registry is one of ``docker.io``, and without a path there, one of its ``library``.
    """
    found = _IMAGE.fullmatch(image)
    if found is None:
        return None
    registry, path = found["registry"], found["path"]
    if registry is not None and not re.search(r"[.:A-Z]", registry) and registry != "localhost":
        registry, path = None, f"{registry}/{path}"  # the first part of a path, not a host
    registry = (registry or "docker.io").lower()
    if registry == "index.docker.io":
        registry = "docker.io"
    if registry == "docker.io" and "/" not in path:
        path = f"library/{path}"
    return f"{registry}/{path}"


def server_address(address: str) -> str | None:
    """Return a server with its port, as patterns name it; None if it is anything else, such as a URL."""
    found = _SERVER.fullmatch(address)
    return None if found is None else found["host"].lower() + found["port"]


def absolute_path(path: str) -> str | None:
    """Return a path without needless parts; None if it is relative, or leads up again."""
    if not path.startswith("/") or ".." in path.split("/"):
        return None
    return "/" + normpath(path).lstrip("/")


def data_place(path: str) -> str | None:
    """Return a path of data, or its URI in an object store, in the one form that patterns match; None for any other."""
    if not is_object(path):
        return absolute_path(path)
    if object_problem(path) is not None:
        return None
    bucket, _, key = path.removeprefix("s3a://").partition("/")
    folder = absolute_path(f"/{key}")
    return None if folder is None else f"s3a://{bucket}{folder}"


def checkpoint_folder(uri: str) -> str | None:
    """Return the folder that a ``file:`` URI names, as the driver reads it; None if it is no plain absolute path."""
    folder = folder_of(uri)
    return None if folder is None else absolute_path(folder)


def checkpoint_address(uri: str) -> str | None:
    """Return the URI of a checkpoint in the one form that patterns match; None for any other URI."""
    if (found := bucket_and_prefix(uri)) is not None:
        scheme, bucket, prefix = found
        path = absolute_path(f"/{prefix}")
        return None if path is None else f"{scheme}://{bucket}{path}"
    folder = checkpoint_folder(uri)
    return None if folder is None else f"file://{folder}"


def code_address(uri: str) -> str | None:
    """Return the URI of own code in the one form that patterns match; None for a file of one machine."""
    return data_place(uri) if is_object(uri) else url_address(uri)


def catalog_address(uri: str) -> str | None:
    """Return the URL of a catalog, or the URI of a Hive metastore, as patterns name it; None for anything else."""
    scheme, _, server = uri.partition("://")
    if scheme != "thrift":
        return url_address(uri)
    address = server_address(server)
    return None if address is None else f"thrift://{address}"


def url_address(url: str) -> str | None:
    """Return scheme, host, port and path of a URL; None if it has anything else, such as a user or a query."""
    found = re.fullmatch(rf"(?P<scheme>https?)://(?P<host>{_HOST}(?:{_PORT})?)(?P<path>/[^?#\\%\s]*)?", url)
    if found is None:
        return None
    path = absolute_path(found["path"] or "/")
    return None if path is None else f"{found['scheme']}://{found['host'].lower()}{path.rstrip('/')}"
