"""Address and credentials of Prometheus."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from millrace_api.errors import MillraceError, Problem


@dataclass(frozen=True)
class PrometheusSettings:
    """Connection settings of one Prometheus server; secrets stay in files, which may change at any time.

    Attributes:
        url: ``http://HOST:PORT/PREFIX`` or ``https://``.
        ca_file: PEM file of CA certificates, one of which must have signed the server's; None uses the system's.
        client_certificate, client_key: PEM files to log in with; the key may be in the certificate's file.
        token_file: file with a bearer token.
        user, password_file: user name, and file with the password.
        timeout_seconds: time limit for a query in Prometheus.
    """

    url: str
    ca_file: Path | None = None
    client_certificate: Path | None = None
    client_key: Path | None = None
    token_file: Path | None = None
    user: str | None = None
    password_file: Path | None = None
    timeout_seconds: float = 10.0

    def __post_init__(self) -> None:
        """Reject invalid settings.

        Raises:
            MillraceError: lists all problems; never quotes a URL that may contain a secret.
        """
        problems = [problem for problem in (self._address(), self._tls(), *self._login(), self._timeout()) if problem]
        if problems:
            raise MillraceError(*problems)

    def _address(self) -> Problem | None:
        field, hint = "url", "write http://HOST:PORT or https://HOST:PORT, with a path if Prometheus is below one"
        if any(mark in self.url for mark in "@?#"):
            return Problem(
                "the URL has credentials, a query or a fragment", f"{hint}; put secrets into files", field=field
            )
        if not self.url.isascii() or not self.url.isprintable() or " " in self.url:
            return Problem(f"the URL {self.url!r} has characters that are not allowed in a URL", hint, field=field)
        try:
            parts = urlsplit(self.url)
            usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:  # a port that is not a number, or an incomplete IPv6 address
            usable = None
        return None if usable else Problem(f'"{self.url}" is not the URL of an HTTP server', hint, field=field)

    def _tls(self) -> Problem | None:
        if self.client_key is not None and self.client_certificate is None:
            return Problem("there is a key without a certificate", "give client_certificate too", field="client_key")
        given = self.ca_file or self.client_certificate
        if given is not None and self.url.startswith("http:"):
            return Problem(f"there are certificates ({given}), but the URL is not https", "write https://", field="url")
        return None

    def _login(self) -> list[Problem]:
        problems = []
        if (self.user is None) != (self.password_file is None):
            problems.append(
                Problem("a user name and a password file belong together", "give both or neither", field="user")
            )
        if self.user is not None and (not self.user or ":" in self.user):
            problems.append(Problem(f'"{self.user}" is not a user name', "give one without a colon", field="user"))
        if self.token_file is not None and (self.user is not None or self.password_file is not None):
            problems.append(Problem("there are both a token and a password", "keep one of them", field="token_file"))
        return problems

    def _timeout(self) -> Problem | None:
        if 0 < self.timeout_seconds < math.inf:
            return None
        return Problem(f"{self.timeout_seconds} is not a timeout", "give seconds above 0", field="timeout_seconds")
