"""Keys and values of the control topic's records, as replicas exchange them: bounded, checked, and never executed.

Other programs may write to the topic, so that a value is read as something that a stranger wrote. It is a compressed
``PartitionerState``, whose counters also have a ``plan``: a checksum of the algorithm, its parameters and the seed. A
record of another plan is ignored. Epochs are not compared: a plan that changes n or m goes on from what is known.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Mapping
from dataclasses import replace

from millrace_jobs.partitioners.state import PartitionerState, pack, unpack
from millrace_jobs.plan.control import Pin
from millrace_jobs.plan.policies import MAX_STATE

STATE, SYNC, POLICY = "state", "sync", "policy"
"""The keys of records: the first two are followed by a slash and the number of the replica."""

MOST = 1 << 48
"""The largest plausible count, so that sums over replicas do not overflow."""

STALE = 8
"""Intervals after which a replica that publishes nothing no longer counts."""

_MOST_REPLICAS = 1 << 10
"""Replicas that exchange records; those with higher numbers work alone."""

_LARGEST = 16 * MAX_STATE
"""Largest value that is decompressed, in bytes."""

log = logging.getLogger(__name__)


def key_of(kind: str, replica: int) -> str:
    """Return the key of a replica's record."""
    return f"{kind}/{replica}"


def replica_in(key: str, kind: str, replicas: int) -> int | None:
    """Return the number of the replica in a key of that kind; None if it is another key, or not below ``replicas``."""
    found, _, number = key.partition("/")
    if found != kind or not (number.isascii() and number.isdigit()) or len(number) > 9 or number != str(int(number)):
        return None
    return int(number) if int(number) < replicas else None


def may_be_exchanged(key: str, value: bytes) -> bool:
    """Return whether replicas may have published the record, under whatever plan; a cooperation ignores any other."""
    if len(value) > MAX_STATE:
        return False
    return key == POLICY or any(replica_in(key, kind, _MOST_REPLICAS) is not None for kind in (STATE, SYNC))


class Values:
    """Values of one plan."""

    def __init__(self, pin: Pin) -> None:
        self._too_large: set[str] = set()
        self._plan = zlib.crc32(json.dumps([pin.algorithm, dict(pin.parameters), pin.seed], sort_keys=True).encode())

    def encode(self, state: PartitionerState) -> bytes | None:
        """Return the value of a record, or None, with a warning the first time, if it is larger than ``MAX_STATE``."""
        value = zlib.compress(pack(with_counters(state, {"plan": self._plan})), 1)
        if len(value) <= MAX_STATE:
            return value
        if state.algorithm not in self._too_large:
            self._too_large.add(state.algorithm)
            message = "replicas cannot exchange %s, so each works alone: it has %d bytes, more than %d"
            log.warning(message, state.algorithm, len(value), MAX_STATE)
        return None

    def decode(self, kind: str, version: int, value: bytes) -> PartitionerState | None:
        """Return the state in a value; None if it is of another plan.

        Raises ValueError if it is no such value, or is damaged.
        """
        try:
            state = unpack(_decompressed(value), kind, version)
            plan = state.counters["plan"]
        except (KeyError, TypeError, OverflowError, RecursionError) as error:
            raise ValueError(f"a record has a malformed header: {error!r}") from None
        return state if plan == self._plan else None


def with_counters(state: PartitionerState, counters: Mapping[str, int]) -> PartitionerState:
    """Return a state with further counters."""
    return replace(state, counters={**state.counters, **counters})


def counter(state: PartitionerState, name: str) -> int:
    """Return a counter of a state. Raises ValueError if it is missing or implausible."""
    value = state.counters.get(name)
    if not isinstance(value, int) or not 0 <= value <= MOST:
        raise ValueError(f"a record has {name} {value!r}")
    return value


def _decompressed(value: bytes) -> bytes:
    if len(value) > MAX_STATE:
        raise ValueError(f"a record has {len(value)} bytes, more than {MAX_STATE}")
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(value, _LARGEST)
    except zlib.error as error:
        raise ValueError(f"a record is damaged: {error}") from None
    if not stream.eof:
        raise ValueError(f"a record is cut off, or has more than {_LARGEST} bytes")
    return data
