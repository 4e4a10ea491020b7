"""Where events of lineage go: a receiver over HTTP, or a file."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, Protocol
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, HTTPSHandler, ProxyHandler, Request, build_opener

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.reporting import LineageHttpSpec, LineageSpec
from millrace_jobs.confinement import require_data
from millrace_jobs.disk import absolute_path
from millrace_jobs.secrets import Secret

SECONDS = 5.0
"""Time limit of connecting and of each wait for the receiver."""

_RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})


class DeliveryError(Exception):
    """An event that was not delivered; ``may_pass`` is whether another attempt may succeed."""

    def __init__(self, why: str, *, may_pass: bool) -> None:
        super().__init__(why)
        self.may_pass = may_pass


class Transport(Protocol):
    """A way to deliver events."""

    def send(self, event: Mapping[str, Any]) -> None:
        """Deliver an event. Raises DeliveryError if it was not, or if that is not known."""


@dataclass(frozen=True)
class HttpTransport:
    """Posts events to a receiver; the key and the certificate authority are read again for each event."""

    url: str
    api_key: Secret | None = None
    ca: Secret | None = None

    @classmethod
    def of(cls, spec: LineageHttpSpec) -> HttpTransport:
        """Return the transport of a spec; read nothing."""
        key, ca = spec.api_key, spec.ca
        return cls(
            spec.url,
            None if key is None else Secret.of("the key for the receiver of lineage", key),
            None if ca is None else Secret.of("the certificate authority of the receiver", ca),
        )

    def send(self, event: Mapping[str, Any]) -> None:
        """Post an event; redirects and proxies of the environment are not followed, since the key is for the URL."""
        try:
            headers = {"Content-Type": "application/json", **self._login()}
            request = Request(self.url, json.dumps(event).encode(), headers, method="POST")
            handlers = [HTTPSHandler(context=self._context()), ProxyHandler({}), _NoRedirects()]
            with build_opener(*handlers).open(request, timeout=SECONDS):
                return
        except HTTPError as error:
            error.close()
            raise DeliveryError(f"it answers {error.code} {error.reason}", may_pass=error.code in _RETRIED) from None
        except (URLError, HTTPException, OSError) as error:
            reason = error.reason if isinstance(error, URLError) else error
            raise DeliveryError(f"it does not answer: {reason}", may_pass=True) from None
        except MillraceError as error:  # a Secret that is not there yet
            raise DeliveryError(error.problems[0].message, may_pass=False) from None

    def _login(self) -> dict[str, str]:
        if self.api_key is None:
            return {}
        value = self.api_key.resolve()
        if not value.isascii() or not value.isprintable():
            raise MillraceError(Problem(f"{self.api_key.what} has characters that an HTTP header cannot have", ""))
        return {"Authorization": f"Bearer {value}"}

    def _context(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cadata=self.ca.resolve() if self.ca is not None else None)
        except ssl.SSLError:
            raise MillraceError(Problem("the certificate authority of the receiver is not PEM", "")) from None


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """Follow none: the answer is an error."""


@dataclass(frozen=True)
class FileTransport:
    """Appends events to a file, one a line."""

    path: Path

    def send(self, event: Mapping[str, Any]) -> None:
        """Append an event."""
        try:
            require_data(self.path)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(event) + "\n")
        except (OSError, MillraceError) as error:
            raise DeliveryError(str(error), may_pass=False) from None


def transport_of(spec: LineageSpec) -> Transport:
    """Return the way to deliver the events of a query."""
    if spec.http is not None:
        return HttpTransport.of(spec.http)
    return FileTransport(absolute_path(spec.file or ""))
