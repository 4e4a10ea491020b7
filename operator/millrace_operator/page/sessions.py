"""Sessions of readers who have logged in with a token: the browser has a random number, and the operator the token.

A cookie is sent to every port of its host, so that a token in one would reach other programs on a reader's machine.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from threading import Lock

SESSION_SECONDS = 8 * 3600.0
"""Seconds after which a session ends; that of a token that is no longer valid ends before."""

MOST_SESSIONS, MOST_OF_USER = 1_000, 10
"""Maximum number of sessions, and of those of one user.

A further one ends the oldest of its user, or of the user with the most sessions.
"""


@dataclass(frozen=True)
class PageSession:
    """A session: the user's name, their token, and when it ends, by the monotonic clock."""

    user: str
    token: str
    until: float

    def __repr__(self) -> str:
        """Return the user alone: a token must not be in a log."""
        return f"PageSession({self.user!r})"


class Sessions:
    """Thread-safe store of sessions, by the digest of their numbers.

    Args:
        clock: monotonic clock, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._sessions: OrderedDict[bytes, PageSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, user: str, token: str) -> str:
        """Begin a session and return its number."""
        number = secrets.token_urlsafe(32)
        with self._lock:
            own = [key for key, each in self._sessions.items() if each.user == user]
            for key in own[: max(len(own) - MOST_OF_USER + 1, 0)]:
                del self._sessions[key]
            if len(self._sessions) >= MOST_SESSIONS:
                self._make_room()
            self._sessions[_digest(number)] = PageSession(user, token, self._clock() + SESSION_SECONDS)
        return number

    def _make_room(self) -> None:
        """Drop the sessions that have ended, else the oldest of the user with the most: others keep theirs."""
        now = self._clock()
        for key in [key for key, each in self._sessions.items() if each.until <= now]:
            del self._sessions[key]
        if len(self._sessions) >= MOST_SESSIONS:
            ((user, _),) = Counter(each.user for each in self._sessions.values()).most_common(1)
            del self._sessions[next(key for key, each in self._sessions.items() if each.user == user)]

    def token(self, number: str) -> str | None:
        """Return the token of a session; None if there is no such session, or if it has ended."""
        with self._lock:
            found = self._sessions.get(_digest(number))
            if found is not None and found.until <= self._clock():
                del self._sessions[_digest(number)]
                found = None
        return None if found is None else found.token

    def end(self, number: str) -> None:
        """End a session, if there is one."""
        with self._lock:
            self._sessions.pop(_digest(number), None)


def _digest(number: str) -> bytes:
    return sha256(number.encode()).digest()
