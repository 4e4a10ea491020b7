"""Asking a schema registry for the schema that a message was written with: once per id, over HTTP or HTTPS."""

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
"""Seconds that a registry may be away."""

_TIMEOUT = 10.0
_PAUSE = 1.0
_JSON = "application/vnd.schemaregistry.v1+json, application/json"
_OVERLOADED = 429
_NOT_FOUND = 404
_NO_SCHEMA = 40403
"""How a registry says that it has no such schema; any other 404 is of a path that is no registry's."""


@dataclass(frozen=True)
class SchemaRegistry:
    """A registry by its URL.

    Raises MillraceError where that is not one of HTTP or HTTPS, or carries a password.
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
        """The schema with this id, or why there is none that a message can be decoded with.

        Raises:
            MillraceError: the registry does not answer, or answers something else; TransientError where that may pass.
        """
        return _schema(self.url.rstrip("/"), number)


@lru_cache(maxsize=4096)
def _schema(url: str, number: int) -> AvroSchema | str:
    """Asked once in a process: what is registered under an id never changes, and was before it was written with."""
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
    """The JSON object there; None where the registry has no such schema. Waits for a registry that is away."""
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
