"""Sharding of queries among several operators: see ``Shard``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256

from millrace_api.errors import MillraceError, Problem

_HINT = "write I/N with I from 1 to N and N up to 9999, such as 2/5 for the second of five"


@dataclass(frozen=True)
class Shard:
    """One of ``count`` equal parts of all queries; ``number`` starts at 1.

    A hash of namespace and name assigns each query to exactly one shard. This needs no label and survives any change of
    the query. A label would also have to be on all objects of the query, and would change with every new count.

    Operators with different counts disagree on who owns a query. Stop all operators of the old count before starting
    the first one of the new count.
    """

    number: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Parse text such as ``2/5``. Raises MillraceError if it is not a valid shard."""
        match = re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", text)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise MillraceError(Problem(f"--shard {text!r} is not a shard", _HINT))
        return cls(int(match[1]), int(match[2]))

    def owns(self, namespace: str, name: str) -> bool:
        """Return whether this shard owns the query."""
        if self.count == 1:
            return True
        hashed = sha256(f"{namespace}/{name}".encode()).digest()
        return int.from_bytes(hashed[:8]) % self.count == self.number - 1

    def name(self, base: str) -> str:
        """Return a name unique to this shard; ``base`` itself if there is only one shard."""
        return base if self.count == 1 else f"{base}-{self.number}-of-{self.count}"
