"""Order of keys that wait for a worker, in which the owners of the keys take turns: see ``FairQueue``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Key = TypeVar("Key")


@dataclass
class _Lane(Generic[Key]):
    """Keys of one owner: those in progress, the new ones, which come after them, and how many workers have one."""

    ready: deque[Key] = field(default_factory=deque)
    new: deque[Key] = field(default_factory=deque)
    working: int = 0
    has_turn: bool = False

    def __len__(self) -> int:
        return len(self.ready) + len(self.new)


class FairQueue(Generic[Key]):
    """Keys that wait, handed out so that no owner of many keys delays the keys of another one.

    The owners take turns with one key each, and an owner has at most so many workers at a time, so that others find a
    free one. Each key may be added only once until it is taken. Not safe for threads.

    Args:
        owner: returns the owner of a key.
        most: number of workers that one owner may have at a time; None for no limit.
    """

    def __init__(self, owner: Callable[[Key], Hashable], most: int | None = None) -> None:
        self._owner = owner
        self._most = most
        self._first: deque[Key] = deque()
        self._lanes: dict[Hashable, _Lane[Key]] = {}
        self._turns: deque[Hashable] = deque()
        """Owners whose next key may be taken, each once."""

    def __len__(self) -> int:
        """Return the number of keys that wait."""
        return len(self._first) + sum(map(len, self._lanes.values()))

    def add(self, key: Key, *, new: bool = False) -> None:
        """Add a key; new ones come after the other keys of their owner."""
        lane = self._lane(key)
        (lane.new if new else lane.ready).append(key)
        self._give_turn(self._owner(key), lane)

    def add_first(self, key: Key) -> None:
        """Add a key before those of all owners."""
        self._first.append(key)

    def move_first(self, key: Key) -> None:
        """Move a key that was added before those of all owners; do nothing if it does not wait."""
        lane = self._lane(key)
        for keys in (lane.ready, lane.new):
            if key in keys:
                keys.remove(key)
                self._first.append(key)
        self._drop_if_empty(key, lane)

    def take(self) -> Key | None:
        """Return the next key, or None if none may be taken now; call ``done`` with it when its work is done."""
        if self._first:
            key = self._first.popleft()
            self._lane(key).working += 1
            return key
        while self._turns:
            owner = self._turns.popleft()
            lane = self._lanes[owner]
            lane.has_turn = False
            if lane:
                key = (lane.ready or lane.new).popleft()
                lane.working += 1
                self._give_turn(owner, lane)
                return key
        return None

    def done(self, key: Key) -> None:
        """Note that the worker of a key is free again."""
        lane = self._lane(key)
        lane.working -= 1
        self._give_turn(self._owner(key), lane)
        self._drop_if_empty(key, lane)

    def _lane(self, key: Key) -> _Lane[Key]:
        return self._lanes.setdefault(self._owner(key), _Lane())

    def _give_turn(self, owner: Hashable, lane: _Lane[Key]) -> None:
        """Let an owner take part in the turns if it has a key and may have another worker."""
        if lane and not lane.has_turn and (self._most is None or lane.working < self._most):
            lane.has_turn = True
            self._turns.append(owner)

    def _drop_if_empty(self, key: Key, lane: _Lane[Key]) -> None:
        if not (lane or lane.working or lane.has_turn):
            del self._lanes[self._owner(key)]
