"""Which queries a user sees: those that the API server lets them list or get, as reviewed within the last minute."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Sequence
from hashlib import sha256
from threading import BoundedSemaphore, Lock
from typing import Generic, Protocol, TypeVar

from ..kube.review_api import User
from ..lifecycle.token_buckets import TokenBuckets

FRESH_SECONDS = 60.0
"""Seconds for which a review counts; a right or a token that was taken away is noticed within that time."""

MOST_TOKENS, MOST_RIGHTS = 1_000, 20_000
"""Maximum number of reviews of tokens and of rights that are remembered; the least recently used ones go first."""

REVIEW_SECONDS = 4.0
"""Total time in seconds that a request spends on reviews; what is not known by then is not shown."""

SCANS = 2
"""Maximum number of requests that review the rights in all namespaces at the same time, one of each user."""

REVIEWS_BURST, SECONDS_EACH_REVIEW = 200, 0.02
"""Budget of reviews of all users: how many at once, and the seconds after which there is one more."""

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

    def known(self, key: Hashable) -> _Value | None:
        """Return a value that is known and not too old, else None."""
        with self._lock:
            at, found = self._values.get(key, (float("-inf"), None))
            return found if self._clock() - at < FRESH_SECONDS else None

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
        is_complete: whether the rights in all namespaces are known.
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
        self._budget = TokenBuckets(REVIEWS_BURST, SECONDS_EACH_REVIEW, clock)
        self._slots = BoundedSemaphore(SCANS)
        self._lock = Lock()
        self._scanning: set[str] = set()
        """Names of the users of running scans; users of one name differ by token, whose id is in their attributes."""
        self._next: OrderedDict[User, str] = OrderedDict()
        """Where the next scan of a user begins, if the last one did not come to the end."""

    def user_of(self, token: str) -> User | None:
        """Return whose token this is; None if the API server does not accept it. Only its digest is remembered."""
        (user,) = self._users.get(_digest(token), lambda: (self._reviews.user_of(token),))
        return user

    def is_known(self, token: str) -> bool:
        """Return whether a token was reviewed within the last minute, or was accepted when it last was."""
        return self._users.has(_digest(token), lambda reviewed: reviewed[0] is not None)

    def visible(self, user: User, namespaces: Collection[str]) -> Visible:
        """Return what a user sees of the namespaces that have queries.

        The rights in single namespaces are only reviewed if the user may not list the queries of all of them. What is
        not known when the time or the budget is used up, or while others are reviewed, is left to later requests.
        """
        if self._may(user, "list"):
            return Visible(everywhere=True)
        known = {each: self._rights.known(_key(user, "list", each)) for each in namespaces}
        found = [namespace for namespace, allowed in known.items() if allowed]
        unknown = sorted(namespace for namespace, allowed in known.items() if allowed is None)
        if not unknown:
            return Visible(found)
        if not self._begin_scan(user):
            return Visible(found, is_complete=False)
        try:
            more, is_complete = self._scan(user, unknown)
        finally:
            self._end_scan(user)
        return Visible(found + more, is_complete=is_complete)

    def may_see(self, user: User, namespace: str, name: str) -> bool:
        """Return whether a user sees one query: by the right to list those of its namespace, or to get this one."""
        return self._may(user, "list") or self._may(user, "list", namespace) or self._may(user, "get", namespace, name)

    def _begin_scan(self, user: User) -> bool:
        """Return whether a scan may begin: not beside another one of the user, nor beside many of others."""
        with self._lock:
            if user.name in self._scanning or not self._slots.acquire(blocking=False):
                return False
            self._scanning.add(user.name)
            return True

    def _end_scan(self, user: User) -> None:
        with self._lock:
            self._scanning.remove(user.name)
            self._slots.release()

    def _scan(self, user: User, namespaces: Sequence[str]) -> tuple[list[str], bool]:
        """Review sorted namespaces; return those whose queries the user may list, and whether all were reviewed.

        A scan begins where the last one stopped: if each began at the front, reviews of the first names would be too
        old again by the time that the last ones could be reviewed.
        """
        first = self._next.pop(user, "")
        until = self._clock() + REVIEW_SECONDS
        found: list[str] = []
        for namespace in sorted(namespaces, key=lambda each: (each < first, each)):
            if self._clock() > until or self._budget.wait(None) > 0:
                self._next[user] = namespace
                while len(self._next) > MOST_TOKENS:
                    self._next.popitem(last=False)
                return found, False
            if self._may(user, "list", namespace):
                found.append(namespace)
        return found, True

    def _may(self, user: User, verb: str, namespace: str = "", name: str = "") -> bool:
        def review() -> bool:
            self._budget.spend(None, 1)
            return self._reviews.may(user, verb, namespace, name)

        return self._rights.get(_key(user, verb, namespace, name), review)


def _key(user: User, verb: str, namespace: str = "", name: str = "") -> Hashable:
    return user, verb, namespace, name


def _digest(token: str) -> bytes:
    return sha256(token.encode()).digest()
