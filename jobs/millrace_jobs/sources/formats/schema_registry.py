"""Client of a schema registry: fetches the writer's schema of a message once per id, over HTTP or HTTPS."""

from __future__ import annotations

import json
import ssl
import time
from dataclasses import dataclass
from functools import lru_cache
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_jobs.sources.formats.avro_schema import AvroSchema, read_avro_schema

PATIENCE = 30.0
"""Seconds to keep trying while a registry does not answer."""

_TIMEOUT = 10.0
_PAUSE = 1.0
_JSON = "application/vnd.schemaregistry.v1+json, application/json"
_OVERLOADED = 429
_NOT_FOUND = 404
_NO_SCHEMA = 40403
"""The error code of a registry without the schema; any other 404 means that the URL is not a registry's."""


@dataclass(frozen=True)
class SchemaRegistry:
    """A schema registry, identified by its URL.

    Raises MillraceError if the URL is not HTTP or HTTPS, or contains a user or a password.
    """

    url: str

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.username or parts.password:
            shown = parts._replace(netloc=f"...@{parts.hostname}").geturl()
            hint = "leave user and password out: a spec is no place for secrets"
            raise MillraceError(Problem(f"the registry's URL {shown} carries a login", hint))
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise MillraceError(Problem(f"{self.url!r} is not the URL of a registry", "write http://host:8081"))

    def schema(self, number: int) -> AvroSchema | str:
        """Return the schema with this id, or the reason why there is no Avro schema with this id.

        Raises:
            MillraceError: the registry refuses the request, or its answer cannot be used.
            TransientError: the registry does not answer for ``PATIENCE`` seconds.
        """
        return _schema(self.url.rstrip("/"), number)


@lru_cache(maxsize=4096)
def _schema(url: str, number: int) -> AvroSchema | str:
    """Fetch a schema once per process: an id is registered before it is used, and its schema never changes."""
    document = _get(f"{url}/schemas/ids/{number}")
    if document is None:
        return f"the registry has no schema {number}"
    kind = document.get("schemaType", "AVRO")
    if kind != "AVRO":
        return f"schema {number} of the registry is {kind}, not Avro"
    if document.get("references"):
        hint = "register it with the schemas that it refers to written into it"
        raise MillraceError(Problem(f"schema {number} at {url} refers to other subjects, which is not supported", hint))
    try:
        return read_avro_schema(document["schema"])
    except (ValueError, KeyError, TypeError) as error:
        raise MillraceError(Problem(f"schema {number} at {url} cannot be used: {error}")) from error


def _get(url: str) -> dict[str, Any] | None:
    """Return the JSON object at ``url``, or None if the registry lacks the schema; retry while it does not answer."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with urlopen(Request(url, headers={"Accept": _JSON}), timeout=_TIMEOUT) as answer:
                return _object(answer.read(), url)
        except HTTPError as error:
            if error.code == _NOT_FOUND and _is_missing_schema(error):
                return None
            if error.code < 500 and error.code != _OVERLOADED:
                raise _refused(url, f"HTTP {error.code} {error.reason}") from None
            why = f"HTTP {error.code} {error.reason}"
        except (URLError, OSError, HTTPException) as error:
            reason = error.reason if isinstance(error, URLError) else error
            why = str(reason) or type(reason).__name__
            if isinstance(reason, ssl.SSLError):
                raise _refused(url, why) from None
        if time.monotonic() > deadline:
            hint = "check whether the registry runs, and avro.registry"
            raise TransientError(Problem(f"the schema registry does not answer at {url}: {why}", hint))
        time.sleep(_PAUSE)


def _is_missing_schema(answer: HTTPError) -> bool:
    try:
        said = json.loads(answer.read())
    except (ValueError, OSError, HTTPException):
        return False
    return isinstance(said, dict) and said.get("error_code") == _NO_SCHEMA


def _object(body: bytes, url: str) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise _refused(url, "it answers something that is not a JSON object")
    return document


def _refused(url: str, why: str) -> MillraceError:
    return MillraceError(Problem(f"the schema registry cannot be used at {url}: {why}", "check avro.registry"))
