"""SYNC messages and policies in the format of states, so that replicas in processes of their own can exchange them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.partitioners.parameters import whole_number
from millrace_jobs.partitioners.state import PartitionerState, as_vector

from .bandit import INITIAL
from .cooperative import GlobalPolicy, SyncMessage

SYNC_KIND, POLICY_KIND = "dalton SYNC", "dalton policy"
"""The algorithms that the states of messages name."""

VERSION = 1

_MOST = 1 << 48
"""The largest plausible count, as in ``replica_state``."""

_SYNC_ARRAYS: Mapping[str, Any] = {
    "keys": np.uint64,
    "frequencies": np.int64,
    "split": np.bool_,
    "learned": np.bool_,
    "q": np.float64,
}
_SYNC_NUMBERS = {"replica": 0, "load": 0, "rehashed": 0, "slower": 0}  # by name: the least value
_POLICY_ARRAYS: Mapping[str, Any] = {"keys": np.uint64, "q": np.float64, "split": np.uint64, "interval": np.float64}
_POLICY_NUMBERS = {"replicas": 1, "load": 0, "rehashed": 0}


def sync_state(message: SyncMessage) -> PartitionerState:
    """Return a SYNC message as a state."""
    return _state(SYNC_KIND, message, _SYNC_ARRAYS, _SYNC_NUMBERS)


def policy_state(policy: GlobalPolicy) -> PartitionerState:
    """Return a policy as a state."""
    return _state(POLICY_KIND, policy, _POLICY_ARRAYS, _POLICY_NUMBERS)


def sync_of(state: PartitionerState) -> SyncMessage:
    """Return the message in a state that ``sync_state`` made. Raises ValueError if it contradicts itself."""
    fields = _fields("a SYNC message", state, _SYNC_ARRAYS, _SYNC_NUMBERS)
    rows = len(fields["keys"])
    if any(len(fields[name]) != rows for name in ("frequencies", "split", "learned")):
        raise ValueError("the keys of a SYNC message and what it says of them differ in number")
    if rows and not 0 <= fields["frequencies"].min() <= fields["frequencies"].max() <= _MOST:
        raise ValueError("a SYNC message has implausible frequencies of keys")
    q = _table(fields["q"], int(np.count_nonzero(fields["learned"])), state.workers)
    return SyncMessage(**fields | {"q": q, "slower": bool(fields["slower"])})


def policy_of(state: PartitionerState) -> GlobalPolicy:
    """Return the policy in a state that ``policy_state`` made. Raises ValueError if it contradicts itself."""
    fields = _fields("a policy", state, _POLICY_ARRAYS, _POLICY_NUMBERS)
    if (fields["split"][1:] <= fields["split"][:-1]).any():
        raise ValueError("the split keys of a policy are not in ascending order")
    interval = fields["interval"].tolist()
    if len(interval) > 1 or not all(math.isfinite(seconds) and seconds > 0 for seconds in interval):
        raise ValueError("the interval of a policy is not a positive number")
    q = _table(fields["q"], len(fields["keys"]), state.workers)
    return GlobalPolicy(**fields | {"q": q, "interval": interval[0] if interval else None})


def _state(
    kind: str, message: SyncMessage | GlobalPolicy, arrays: Mapping[str, Any], numbers: Mapping[str, int]
) -> PartitionerState:
    counters = {name: int(getattr(message, name)) for name in numbers}
    values = {name: getattr(message, name) for name in arrays}
    vectors = {
        name: as_vector(np.asarray([] if value is None else value, arrays[name])) for name, value in values.items()
    }
    return PartitionerState(kind, VERSION, message.workers, counters, vectors)


def _fields(
    title: str, state: PartitionerState, arrays: Mapping[str, Any], numbers: Mapping[str, int]
) -> dict[str, Any]:
    """Return the fields of a message. Raises ValueError if one is missing or implausible."""
    found: dict[str, Any] = {"workers": state.workers}
    try:
        for name, dtype in arrays.items():
            vector = state.vectors[name]
            found[name] = vector.astype(dtype) if dtype is np.bool_ else vector.view(dtype)
        for name, least in numbers.items():
            found[name] = whole_number(f"the {name} of {title}", state.counters[name], least)
    except KeyError as error:
        raise ValueError(f"{title} without {error.args[0]} cannot be read") from None
    if any(found[name] > _MOST for name in numbers):
        raise ValueError(f"{title} has implausible counts")
    if len(np.unique(found["keys"])) != len(found["keys"]):
        raise ValueError(f"{title} has a key twice")
    return found


def _table(q: NDArray[Any], rows: int, workers: int) -> NDArray[np.float64]:
    """Return a Q-table of that many rows. Raises ValueError on another size, or values that no reward gives."""
    if len(q) != rows * workers or not ((q >= INITIAL) & (q <= 1.0)).all():
        raise ValueError(f"{len(q)} numbers are not the Q-table of {rows} keys and {workers} workers")
    return q.reshape(rows, workers)
