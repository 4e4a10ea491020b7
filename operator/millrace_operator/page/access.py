"""Which queries a user sees: those that the API server lets them list or get, as reviewed within the last minute."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable
from hashlib import sha256
from threading import Lock
from typing import Generic, Protocol, TypeVar

from ..kube.review_api import User

FRESH_SECONDS = 60.0
"""Seconds for which a review counts; a right or a token that was taken away is noticed within that time."""

MOST_TOKENS, MOST_RIGHTS = 1_000, 20_000
"""Maximum number of reviews of tokens and of rights that are remembered; the least recently used ones go first."""

REVIEW_SECONDS = 4.0
"""Total time in seconds that a request spends on reviews; what is not known by then is not shown."""

_Value = TypeVar("_Value")


class Reviews(Protocol):
    """The reviews that the API server makes, see ``ReviewApi``."""

    def user_of(self, token: str) -> User | None:
        """Return whose token this is; None if the API server does not accept it."""

    def may(self, user: User, verb: str, namespace: str = "", name: str = "") -> bool:
        """Return whether a user may do this with StreamQueries."""


class ReviewCache(Generic[_Value]):
    """Thread-safe cache of a bounded number of values, each for a bounded time.

    Args:
        most: maximum number of values.
        clock: monotonic clock, in seconds.
    """

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._most, self._clock = most, clock
        self._values: OrderedDict[Hashable, tuple[float, _Value]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable, ask: Callable[[], _Value]) -> _Value:
        """Return a value, asked for now if it is not known or too old. Raises what ``ask`` raises."""
        with self._lock:
            at, found = self._values.get(key, (float("-inf"), None))
            if found is not None and self._clock() - at < FRESH_SECONDS:
                self._values.move_to_end(key)
                return found
        value = ask()
        with self._lock:
            self._values[key] = self._clock(), value
            self._values.move_to_end(key)
            while len(self._values) > self._most:
                self._values.popitem(last=False)
        return value

    def has(self, key: Hashable, lasts: Callable[[_Value], bool]) -> bool:
        """Return whether a value is known: one that is not too old, or else one that lasts."""
        with self._lock:
            at, found = self._values.get(key, (float("-inf"), None))
            return found is not None and (self._clock() - at < FRESH_SECONDS or lasts(found))


class Visible:
    """What a user sees: all namespaces, or some of them.

    Attributes:
        everywhere: whether the user may list the queries of all namespaces.
        namespaces: the namespaces whose queries they may list.
        is_complete: whether there was time to review the rights in all namespaces.
    """

    def __init__(self, namespaces: Collection[str] = (), *, everywhere: bool = False, is_complete: bool = True) -> None:
        self.everywhere, self.namespaces, self.is_complete = everywhere, frozenset(namespaces), is_complete

    def __contains__(self, namespace: str) -> bool:
        return self.everywhere or namespace in self.namespaces


class Access:
    """The owners of tokens, and the queries that they see.

    Args:
        reviews: asks the API server.
        clock: monotonic clock, in seconds.
    """

    def __init__(self, reviews: Reviews, clock: Callable[[], float] = time.monotonic) -> None:
        self._reviews, self._clock = reviews, clock
        self._users: ReviewCache[tuple[User | None]] = ReviewCache(MOST_TOKENS, clock)
        self._rights: ReviewCache[bool] = ReviewCache(MOST_RIGHTS, clock)

    def user_of(self, token: str) -> User | None:
        """Return whose token this is; None if the API server does not accept it. Only its digest is remembered."""
        (user,) = self._users.get(_digest(token), lambda: (self._reviews.user_of(token),))
        return user

    def is_known(self, token: str) -> bool:
        """Return whether a token was reviewed within the last minute, or was accepted when it last was."""
        return self._users.has(_digest(token), lambda reviewed: reviewed[0] is not None)

    def visible(self, user: User, namespaces: Collection[str]) -> Visible:
        """Return what a user sees of the namespaces that have queries.

        The rights in single namespaces are only reviewed if the user may not list the queries of all of them.
        """
        if self._may(user, "list"):
            return Visible(everywhere=True)
        until = self._clock() + REVIEW_SECONDS
        found: list[str] = []
        for namespace in sorted(namespaces):
            if self._clock() > until:  # the rest is reviewed by the next requests, as this is remembered
                return Visible(found, is_complete=False)
            if self._may(user, "list", namespace):
                found.append(namespace)
        return Visible(found)

    def may_see(self, user: User, namespace: str, name: str) -> bool:
        """Return whether a user sees one query: by the right to list those of its namespace, or to get this one."""
        return self._may(user, "list") or self._may(user, "list", namespace) or self._may(user, "get", namespace, name)

    def _may(self, user: User, verb: str, namespace: str = "", name: str = "") -> bool:
        key = (user, verb, namespace, name)
        return self._rights.get(key, lambda: self._reviews.may(user, verb, namespace, name))


def _digest(token: str) -> bytes:
    return sha256(token.encode()).digest()
