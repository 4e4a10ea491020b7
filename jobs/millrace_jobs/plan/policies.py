"""Learned states: what the partitioner replicas had learned after a batch, stored for a later batch to start from.

A learned state decides where records go, never what the results are: a query that has lost it only learns again. Each
is a file in the checkpoint's folder ``policies``.
"""

from __future__ import annotations

import base64
import json
import logging
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from millrace_jobs.partitioners.registry import initial_states
from millrace_jobs.places import Place, write_durably
from millrace_jobs.plan.control import Pin

MAX_STATE = 1 << 18
"""Largest state of a replica that is carried from batch to batch, in bytes of compressed text."""

_RETAINED_FILES = 3
"""Number of files to retain: an uncommitted batch began with the newest one or the one before it."""

log = logging.getLogger(__name__)


def state_text(state: bytes) -> str | None:
    """Encode a replica's state as text for its note to the driver; return None if it is too large."""
    text = base64.b85encode(zlib.compress(state, 1)).decode("ascii")
    return text if len(text) <= MAX_STATE else None


def state_of(text: str) -> bytes:
    """Decode a state that ``state_text`` encoded. Raises ValueError on any other text."""
    try:
        return zlib.decompress(base64.b85decode(text))
    except zlib.error as error:
        raise ValueError(f"a partitioner's state is damaged: {error}") from None


@dataclass(frozen=True)
class LearnedState:
    """The learned state of the replicas after a batch; ``states`` has one ``state_text`` per replica."""

    algorithm: str
    parameters: Mapping[str, Any]
    seed: int
    states: tuple[str, ...]

    def serves(self, pin: Pin) -> bool:
        """Whether a batch under this pin can start from this state."""
        return (self.algorithm, self.parameters, self.seed) == (pin.algorithm, pin.parameters, pin.seed)


class LearnedStates:
    """The learned states in a checkpoint: one file per batch that has left one, of which the newest are retained."""

    def __init__(self, folder: Place) -> None:
        self._folder = folder

    @cached_property
    def _stored(self) -> list[int]:
        """The batches that have left a learned state, in ascending order."""
        return _batches(self._folder)

    @cached_property
    def _newest(self) -> tuple[int, LearnedState] | None:
        """The newest learned state, with its batch; at first, the newest readable one of an earlier run."""
        readable = ((batch, self.read(batch)) for batch in reversed(self._stored))
        return next(((batch, learned) for batch, learned in readable if learned is not None), None)

    def attach(self, pin: Pin) -> Pin:
        """Return the pin with the batch of the newest learned state; with None if that state does not fit the pin."""
        if self._newest is None or not self._newest[1].serves(pin):
            return replace(pin, policy=None)
        return replace(pin, policy=self._newest[0])

    def store(self, batch: int, pin: Pin, states: Mapping[int, str | None]) -> None:
        """Write the final states of a finished batch's replicas, before any other batch is pinned to them.

        A replica without a slice keeps the state that it began with. If a state is too large to be carried (None), the
        next batch starts without a learned state, rather than with an older one.

        Raises:
            OSError: nothing can be written; later batches then start from an older state.
        """
        if not states:
            return
        if None in states.values():
            self._newest = None
            return
        known = self._begun_with(pin) if len(states) < pin.replicas else {}
        known |= {replica: state for replica, state in states.items() if state is not None}
        learned = LearnedState(pin.algorithm, dict(pin.parameters), pin.seed, tuple(known[i] for i in sorted(known)))
        write_durably(self._folder / f"{batch}.json", json.dumps(asdict(learned)).encode())
        self._newest = batch, learned
        self._stored = sorted({*self._stored, batch})
        for old in self._stored[:-_RETAINED_FILES]:
            (self._folder / f"{old}.json").unlink(missing_ok=True)
        self._stored = self._stored[-_RETAINED_FILES:]

    def read(self, batch: int) -> LearnedState | None:
        """Return the learned state of a batch; None, with a warning, if the file is missing or damaged."""
        path = self._folder / f"{batch}.json"
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            return LearnedState(**content | {"states": tuple(content["states"])})
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("the learned state in %s cannot be read, so partitioners start without it: %s", path, error)
            return None

    def _begun_with(self, pin: Pin) -> dict[int, str]:
        """Return the states that a batch's replicas began with; empty unless there is one for each replica."""
        learned = None if pin.policy is None else self.read(pin.policy)
        return dict(enumerate(learned.states)) if learned and len(learned.states) == pin.replicas else {}

    def beginnings(self, pin: Pin) -> list[bytes]:
        """Return the initial state of each replica of a batch; empty if they start without one."""
        learned = None if pin.policy is None else self.read(pin.policy)
        if learned is None:
            return []
        try:
            return initial_states(
                pin.algorithm,
                [state_of(text) for text in learned.states],
                workers=pin.workers,
                replicas=pin.replicas,
                seed=pin.seed,
                parameters=pin.parameters,
            )
        except ValueError as error:
            message = "the learned state of batch %d cannot be used, so partitioners start without it: %s"
            log.warning(message, pin.policy, error)
            return []


def _batches(folder: Place) -> list[int]:
    """Return the batches that have left a learned state, in ascending order."""
    try:
        names = [place.name.removesuffix(".json") for place in folder.iterdir() if place.name.endswith(".json")]
    except OSError:  # partitioners start without what was learned
        return []
    return sorted(int(name) for name in names if name.isdigit())
