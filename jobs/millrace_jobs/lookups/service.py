"""The service of look-ups for other pods: who is let in, by which certificate, and how often.

A reader sends a bearer token. The tokens are in a file, one a line, and are read again when it has changed, as is the
certificate, so that neither needs a restart. Without a valid token, nothing but 401 is answered, and the connection is
closed. Neither tokens nor what readers send is ever written anywhere.
"""

from __future__ import annotations

import hashlib
import hmac
import ssl
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millrace_jobs.lookups.server import ClientConnection

SHORTEST_TOKEN = 16
"""Shortest token in characters: shorter ones could be guessed, and are ignored."""

REQUESTS_PER_SECOND = 1_000.0
"""Requests with a valid token that are answered in a second, those of all readers together; further ones get 429."""

STRANGER_SECONDS = 5.0
"""Seconds that a connection has until its first request with a valid token, its handshake included."""

MAX_STRANGERS = 64
"""Connections without a valid token so far, those in their handshake included; a further one closes the oldest."""

MAX_READERS = 64
"""Connections that have sent a valid token; further ones get 503."""

Stamp = tuple[int, int, int] | None
"""What shows that a file was changed or replaced; None if it cannot be read."""


@dataclass(frozen=True)
class ServiceSettings:
    """Where the service listens, and its files: tokens, and certificate and key for TLS."""

    host: str
    port: int
    tokens: str
    certificate: str | None = None
    key: str | None = None


class TokenFile:
    """The tokens in a file, as hashes."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._digests: tuple[bytes, ...] = ()
        self._stamp: Stamp = (0, 0, 0)
        self.refresh()

    def refresh(self) -> None:
        """Read the file if it has changed. One that cannot be read has no tokens."""
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return
        self._stamp, self._digests = stamp, ()
        try:
            tokens = self._path.read_text(encoding="utf-8").split()
        except (OSError, UnicodeDecodeError):
            _warn("the tokens for look-ups cannot be read: requests to the service are refused until they can")
            return
        valid = [token for token in tokens if len(token) >= SHORTEST_TOKEN]
        self._digests = tuple(map(_digest, valid))
        if len(valid) < len(tokens) or not valid:
            ignored = len(tokens) - len(valid)
            _warn(f"{ignored} tokens for look-ups have fewer than {SHORTEST_TOKEN} characters, {len(valid)} are valid")

    def admits(self, authorization: str) -> bool:
        """Return whether the value of the header has a valid token; the time that it takes says nothing about one."""
        scheme, _, token = authorization.partition(" ")
        given, found = _digest(token.strip()), False
        for each in self._digests:
            found |= hmac.compare_digest(each, given)
        return found and scheme.lower() == "bearer"


@dataclass
class RequestAllowance:
    """A number of requests a second, of which those of one second can be saved up."""

    per_second: float
    clock: Callable[[], float]
    _left: float = field(init=False)
    _at: float = field(init=False)

    def __post_init__(self) -> None:
        self._left, self._at = self.per_second, self.clock()

    def take(self) -> bool:
        """Return whether there is room for a request now."""
        now = self.clock()
        self._left = min(self.per_second, self._left + (now - self._at) * self.per_second)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class LookupService:
    """What stands between connections from other pods and the table.

    Raises:
        OSError, ssl.SSLError: certificate and key cannot be read, or do not belong together.
    """

    def __init__(self, settings: ServiceSettings, clock: Callable[[], float]) -> None:
        self.settings = settings
        self.strangers: dict[ClientConnection, None] = {}
        """Connections that have sent no valid token yet, the oldest first."""
        self.readers: set[ClientConnection] = set()
        """Connections that have sent one."""
        self._tokens = TokenFile(settings.tokens)
        self._allowance = RequestAllowance(REQUESTS_PER_SECOND, clock)
        self.tls: ssl.SSLContext | None = None
        """What the next connection shakes hands with."""
        self._certified = self._refused = self._stamps()
        if settings.certificate is not None:
            self.tls = _tls(settings.certificate, settings.key)

    def admits(self, headers: Mapping[str, str]) -> bool:
        """Return whether a request has a valid token."""
        return self._tokens.admits(headers.get("authorization", ""))

    def connect(self, connection: ClientConnection) -> None:
        """Give a new connection a place among the strangers, if need be that of the oldest.

        A reader sends its token at once, and therefore passes through even while silent clients take all places.
        """
        if len(self.strangers) >= MAX_STRANGERS:
            oldest = next(iter(self.strangers))
            del self.strangers[oldest]
            oldest.abort()
        self.strangers[connection] = None

    def promote(self, connection: ClientConnection) -> bool:
        """Give a connection with a valid token a place among the readers; return whether it has one."""
        if connection not in self.readers:
            if len(self.readers) >= MAX_READERS:
                return False
            self.strangers.pop(connection, None)
            self.readers.add(connection)
        return True

    def forget(self, connection: ClientConnection) -> None:
        """Free the place of a connection that has ended."""
        self.strangers.pop(connection, None)
        self.readers.discard(connection)

    def has_room(self) -> bool:
        """Return whether another request can be answered now."""
        return self._allowance.take()

    def refresh(self) -> None:
        """Read tokens and certificate again if they have changed.

        Certificate and key may change at different times. Until they fit, the pair before stays: they are loaded into
        another context, because a context takes a certificate over before it finds that the key is another's.
        """
        self._tokens.refresh()
        certificate, stamps = self.settings.certificate, self._stamps()
        if certificate is None or stamps == self._certified:
            return
        try:
            self.tls = _tls(certificate, self.settings.key)
            self._certified = stamps
        except OSError:
            if stamps != self._refused:
                _warn("the new certificate for look-ups cannot be used: the one before stays")
            self._refused = stamps

    def _stamps(self) -> list[Stamp]:
        return [_stamp(Path(path or "")) for path in (self.settings.certificate, self.settings.key)]


def _tls(certificate: str, key: str | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    return context


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _stamp(path: Path) -> Stamp:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def _warn(text: str) -> None:
    print(f"look-ups: {text}", file=sys.stderr, flush=True)
