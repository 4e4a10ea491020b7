"""Objects put into a store for a query to read."""

from __future__ import annotations

from millrace_jobs.stores.objects import ObjectPath


def put(place: ObjectPath, key: str, content: bytes) -> None:
    ObjectPath(place.scheme, place.bucket, f"{place.key}/{key}").write_bytes(content)
