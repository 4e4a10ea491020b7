"""Client of one Prometheus server; every failure is a ``PrometheusError``."""

from __future__ import annotations

import base64
import string
import time as clock
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import urllib3
from urllib3.exceptions import HTTPError, SSLError

from millrace_api.errors import MillraceError, Problem

from .result import QueryRefusedError, Series, read
from .settings import PrometheusSettings

MAX_ANSWER = 1 << 20
"""Maximum size of an answer in bytes: one about a driver takes tens of KiB, and each replica or executor a few.

Parsed, it may take 30 times as much, and what the pods of a query export is theirs to choose.
"""

_CONNECTIONS = 4
_CONNECT_SECONDS = 3.0
_SPARE_SECONDS = 2.0
"""Seconds beyond the query timeout, so that Prometheus can report the timeout itself."""

_PIECE = 1 << 16
_TOKEN_CHARACTERS = frozenset(string.ascii_letters + string.digits + string.punctuation)


class PrometheusError(MillraceError):
    """Prometheus is unreachable, refuses a query, or gives an unusable answer; the message quotes it."""


class Prometheus:
    """Client of one Prometheus server. Thread-safe; keeps connections open and never retries.

    Redirects are reported, not followed, so that credentials go only to the URL of the settings.
    """

    def __init__(self, settings: PrometheusSettings) -> None:
        self._settings = settings
        self._url = settings.url.rstrip("/")
        self._path = f"{urlsplit(self._url).path}/api/v1"
        self._seconds = settings.timeout_seconds + _SPARE_SECONDS
        certificates = {
            "ca_certs": settings.ca_file,
            "cert_file": settings.client_certificate,
            "key_file": settings.client_key,
        }
        self._pool = urllib3.connection_from_url(
            self._url,
            maxsize=_CONNECTIONS,
            timeout=urllib3.Timeout(connect=min(_CONNECT_SECONDS, self._seconds), read=self._seconds),
            retries=False,
            # as file names: urllib3 reads them per connection, so renewed ones are used
            **{name: str(path) for name, path in certificates.items() if path is not None},
        )

    def instant(self, query: str, time: float | None = None) -> tuple[Series, ...]:
        """Evaluate a query at a time in seconds since 1970; None means now, by Prometheus' own clock.

        Raises:
            PrometheusError: there is no answer, or none that can be relied on.
        """
        return self._ask("query", query, {} if time is None else {"time": f"{time:.3f}"})

    def range(self, query: str, start: float, end: float, step: float) -> tuple[Series, ...]:
        """Evaluate a query every ``step`` seconds from ``start`` to ``end``, both in seconds since 1970.

        Raises:
            PrometheusError: there is no answer, or none that can be relied on.
        """
        return self._ask("query_range", query, {"start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:.3f}"})

    def _ask(self, resource: str, query: str, times: Mapping[str, str]) -> tuple[Series, ...]:
        form = urlencode({"query": query, **times, "timeout": f"{self._settings.timeout_seconds * 1000:.0f}ms"})
        try:
            response, body = self._post(f"{self._path}/{resource}", form)
        except SSLError as error:
            raise self._error(f"has a TLS error: {error}", self._tls_hint()) from None
        except HTTPError as error:
            raise self._error(f"does not answer: {error}", "check that it runs, and that its URL is right") from None
        status = response.status
        if status // 100 == 3:
            place = _without_secrets(response.headers.get("Location", ""))
            raise self._error(f"redirects to {place}, and that is not followed", "correct its URL")
        try:
            series = read(body)
        except QueryRefusedError as error:
            raise self._error(f"says: {error}") from None
        except ValueError as error:
            if status == HTTPStatus.OK:
                hint = "check that the URL is that of a Prometheus"
                raise self._error(f"gave an answer that cannot be read: {error}", hint) from None
            raise self._foreign(response, body) from None
        if status != HTTPStatus.OK:
            raise self._error(f"says: HTTP {status} {response.reason or ''}")
        return series

    def close(self) -> None:
        """Close idle connections."""
        self._pool.close()

    def _post(self, path: str, form: str) -> tuple[urllib3.BaseHTTPResponse, bytes]:
        """Return the response and its body, within limits of time and size."""
        deadline = clock.monotonic() + self._seconds
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        headers |= _authorization(self._settings)
        response = self._pool.urlopen(
            "POST", path, form, headers, redirect=False, preload_content=False, decode_content=False
        )
        try:
            body = bytearray()
            while piece := response.read1(_PIECE):
                body += piece
                if len(body) > MAX_ANSWER:
                    raise self._error(
                        f"gave an answer of more than {MAX_ANSWER >> 20} MiB",
                        "check that the URL is that of a Prometheus, and that the query's pods export few series",
                    )
                if clock.monotonic() > deadline:
                    hint = "check its load, and the network to it"
                    raise self._error(f"did not end its answer within {self._seconds:g} s", hint)
        finally:
            response.close()
        return response, bytes(body)

    def _foreign(self, response: urllib3.BaseHTTPResponse, body: bytes) -> PrometheusError:
        """Return the error for an answer that is not of Prometheus' API, such as a proxy's."""
        beginning = " ".join(body[:400].decode(errors="replace").split())[:200]
        refused = response.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
        hint = "check the token or the password" if refused else "check that the URL is that of a Prometheus"
        return self._error(f"says: HTTP {response.status} {response.reason or ''}: {beginning}", hint)

    def _tls_hint(self) -> str:
        authority, own = self._settings.ca_file, self._settings.client_certificate
        signed = f"a CA in {authority}" if authority is not None else "a CA that this system trusts"
        accepts = f", and that it accepts {own}" if own is not None else ""
        return f"check that its certificate is valid and signed by {signed}{accepts}"

    def _error(self, message: str, hint: str = "") -> PrometheusError:
        return PrometheusError(Problem(f"Prometheus at {self._url} {message}", hint))


def _without_secrets(url: str) -> str:
    """Return scheme, host and path of a URL."""
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}" if parts.netloc else parts.path
    except ValueError:
        return "an invalid URL"


def _authorization(settings: PrometheusSettings) -> dict[str, str]:
    """Return the ``Authorization`` header, if any, from files that are read each time: secrets are renewed at run time.

    Raises:
        PrometheusError: a file cannot be read or has no usable content. The message never quotes the content.
    """
    if settings.token_file is not None:
        token = _secret(settings.token_file).strip()
        if not token or not _TOKEN_CHARACTERS.issuperset(token):
            hint = "write the token and nothing else into it"
            raise _secret_error(settings.token_file, "contains no valid token", hint)
        return {"Authorization": f"Bearer {token}"}
    if settings.user is not None and settings.password_file is not None:
        password = _secret(settings.password_file).rstrip("\r\n")
        encoded = base64.b64encode(f"{settings.user}:{password}".encode()).decode("ascii")
        return {"Authorization": f"Basic {encoded}"}
    return {}


def _secret(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise _secret_error(path, f"cannot be read: {error.strerror}", "check that it is mounted") from None
    except UnicodeDecodeError:
        raise _secret_error(path, "is not text in UTF-8", "write the secret and nothing else into it") from None


def _secret_error(path: Path, message: str, hint: str) -> PrometheusError:
    return PrometheusError(Problem(f"the credentials file for Prometheus {message}", hint, file=str(path)))
