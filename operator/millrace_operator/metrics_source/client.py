"""Client of one Prometheus server; every failure is a ``PrometheusError``."""

from __future__ import annotations

import base64
import string
import time as clock
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import urllib3
from urllib3.exceptions import HTTPError, SSLError

from millrace_api.errors import MillraceError, Problem

from .result import QueryRefusedError, Series, read
from .settings import PrometheusSettings


class PrometheusError(MillraceError):
    """Prometheus is unreachable, refuses a query, or gives an unusable answer; the message quotes it."""


MAX_ANSWER = 16 << 20
"""Maximum size of an answer in bytes."""

_CONNECTIONS = 4
_CONNECT_SECONDS = 3.0
_SPARE_SECONDS = 2.0
"""Seconds beyond the query timeout, so that Prometheus can report the timeout itself."""

_PIECE = 1 << 16
_OK, _NOT_LOGGED_IN, _REDIRECTS = 200, (401, 403), range(300, 400)


class Prometheus:
    """Client of one Prometheus server. Thread-safe; keeps connections open and never retries.

    Redirects are reported, not followed, so that credentials go only to the URL of the settings.
    """

    def __init__(self, settings: PrometheusSettings) -> None:
        self._settings = settings
        self._url = settings.url.rstrip("/")
        self._prefix = urlsplit(self._url).path
        self._seconds = settings.timeout_seconds + _SPARE_SECONDS
        self._pool = urllib3.connection_from_url(
            self._url,
            maxsize=_CONNECTIONS,
            timeout=urllib3.Timeout(connect=min(_CONNECT_SECONDS, self._seconds), read=self._seconds),
            retries=False,
            **_certificates(settings),
        )

    def instant(self, query: str, time: float | None = None) -> tuple[Series, ...]:
        """Evaluate a query at a time in seconds since 1970; None means now, by Prometheus' own clock.

        Raises:
            PrometheusError: there is no answer, or none that can be relied on.
        """
        return self._ask("query", {"query": query} | ({} if time is None else {"time": _stamp(time)}))

    def range(self, query: str, start: float, end: float, step: float) -> tuple[Series, ...]:
        """Evaluate a query at ``start`` and every ``step`` seconds after it, up to ``end``.

        Raises:
            PrometheusError: there is no answer, or none that can be relied on.
        """
        times = {"start": _stamp(start), "end": _stamp(end), "step": _stamp(step)}
        return self._ask("query_range", {"query": query} | times)

    def close(self) -> None:
        """Close idle connections."""
        self._pool.close()

    def _ask(self, endpoint: str, fields: Mapping[str, str]) -> tuple[Series, ...]:
        form = urlencode({**fields, "timeout": f"{self._settings.timeout_seconds * 1000:.0f}ms"})
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        try:
            status, reason, place, body = self._post(endpoint, form, headers | login(self._settings))
        except SSLError as error:
            raise self._error(f"refuses TLS, or we do: {error}", "see that all certificates fit") from None
        except HTTPError as error:
            raise self._error(f"does not answer: {error}", "see that it runs, and that its URL is right") from None
        if status in _REDIRECTS:
            raise self._error(f"redirects to {_without_secrets(place)}, and that is not followed", "correct its URL")
        try:
            series = read(body)
        except QueryRefusedError as error:
            raise self._error(f"says: {error}") from None
        except ValueError as error:
            said = f"HTTP {status} {reason}: {_beginning(body)}"
            raise self._unreadable(status, said if status != _OK else str(error)) from None
        if status != _OK:
            raise self._error(f"says: HTTP {status} {reason}")
        return series

    def _unreadable(self, status: int, said: str) -> PrometheusError:
        """Return the error for an answer that is not of Prometheus' API, such as a proxy's."""
        if status in _NOT_LOGGED_IN:
            return self._error(f"says: {said}", "see that token or password are right")
        what = "gave an answer that cannot be read" if status == _OK else "says"
        return self._error(f"{what}: {said}", "see that the URL is that of a Prometheus")

    def _post(self, endpoint: str, form: str, headers: Mapping[str, str]) -> tuple[int, str, str, bytes]:
        """Return status, reason, ``Location`` header and body, within limits of time and size."""
        deadline = clock.monotonic() + self._seconds
        path = f"{self._prefix}/api/v1/{endpoint}"
        response = self._pool.urlopen(
            "POST", path, form, dict(headers), redirect=False, preload_content=False, decode_content=False
        )
        try:
            body = bytearray()
            while piece := response.read1(_PIECE):
                body += piece
                if len(body) > MAX_ANSWER:
                    raise self._error(f"gave an answer of more than {MAX_ANSWER >> 20} MiB", "ask for less at a time")
                if clock.monotonic() > deadline:
                    raise self._error(f"did not end its answer within {self._seconds:g} s", "raise timeout_seconds")
        finally:
            response.close()
        return response.status, response.reason or "", response.headers.get("Location", ""), bytes(body)

    def _error(self, message: str, hint: str = "") -> PrometheusError:
        return PrometheusError(Problem(f"Prometheus at {self._url} {message}", hint))


def _certificates(settings: PrometheusSettings) -> dict[str, str]:
    """Return the certificates as file names: urllib3 reads them per connection, so renewed ones are used."""
    files = {
        "ca_certs": settings.ca_file,
        "cert_file": settings.client_certificate,
        "key_file": settings.client_key,
    }
    return {name: str(path) for name, path in files.items() if path is not None}


def _stamp(seconds: float) -> str:
    return f"{seconds:.3f}"


def _without_secrets(url: str) -> str:
    """Return scheme, host and path of a URL."""
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}" if parts.netloc else parts.path
    except ValueError:
        return "another place"


def _beginning(body: bytes) -> str:
    """Return the beginning of a foreign answer, such as a proxy's, on one line."""
    return " ".join(body[:400].decode(errors="replace").split())[:200]


_IN_TOKENS = frozenset(string.ascii_letters + string.digits + string.punctuation)


def login(settings: PrometheusSettings) -> dict[str, str]:
    """Return the ``Authorization`` header, or no header without credentials.

    Raises:
        PrometheusError: a file cannot be read or has no usable content. The message never quotes the content.
    """
    if settings.token_file is not None:
        token = _read(settings.token_file).strip()
        if not token or not _IN_TOKENS.issuperset(token):
            raise _error(settings.token_file, "has no token in it", "it must have one and nothing else")
        return {"Authorization": f"Bearer {token}"}
    if settings.user is not None and settings.password_file is not None:
        password = _read(settings.password_file).rstrip("\r\n")
        encoded = base64.b64encode(f"{settings.user}:{password}".encode()).decode("ascii")
        return {"Authorization": f"Basic {encoded}"}
    return {}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise _error(path, f"cannot be read: {error.strerror}", "see that it is mounted") from None
    except UnicodeDecodeError:
        raise _error(path, "is not text in UTF-8", "it must have the secret and nothing else") from None


def _error(path: Path, message: str, hint: str) -> PrometheusError:
    return PrometheusError(Problem(f"the file with which to log in at Prometheus {message}", hint, file=str(path)))
