"""Which queries are one operator's, where several share them: see ``Shard``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256

from millrace_api.errors import MillraceError, Problem


@dataclass(frozen=True)
class Shard:
    """One of ``count`` equal parts of all queries; ``number`` is from 1.

    A query's part follows from a hash of its namespace and name, so each has exactly one, which needs no label and
    stays through any change. A label would not make the watches smaller than this: the objects of a query would need
    it too, and a new one each time that the count changes.

    Operators of different counts do not agree on whose a query is: end all of the old count before the first of the
    new one.
    """

    number: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read ``2/5``. Raises MillraceError where it is no such thing."""
        match = re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", text)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise MillraceError(Problem(f"there is no shard {text!r}", "write 2/5 for the second of five"))
        return cls(int(match[1]), int(match[2]))

    def owns(self, namespace: str, name: str) -> bool:
        """Whether the query of this name is one of this part."""
        hashed = sha256(f"{namespace}/{name}".encode()).digest()
        return int.from_bytes(hashed[:8]) % self.count == self.number - 1

    def name(self, base: str) -> str:
        """A name of this part's own: ``base`` itself where there is only one part."""
        return base if self.count == 1 else f"{base}-{self.number}-of-{self.count}"
