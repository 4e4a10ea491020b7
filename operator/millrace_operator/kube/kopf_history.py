"""Kopf's record of the last handled version of an object, which this operator does not use."""

from __future__ import annotations

from typing import Any

import kopf


class NoHistory(kopf.DiffBaseStorage):
    """Storage that neither reads nor builds such a record.

    Kopf would decode it from an annotation, which the author of a query can write as well. It ignores an object while
    that fails, so that the operator would not see its deletion. Kopf would also copy each object with each event.
    """

    def build(self, **_: Any) -> Any:
        """Return no record of an object."""
        return None

    def fetch(self, **_: Any) -> Any:
        """Return no record of an object."""
        return None

    def store(self, **_: Any) -> None:
        """Store nothing."""
