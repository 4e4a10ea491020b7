"""What the partitioner replicas had learned after a batch, kept beside the plans so that a later batch begins with it.

A policy decides where records go, never what the results are: a query that has lost it begins to learn anew.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from millrace_jobs.partitioners.handover import beginnings
from millrace_jobs.plan.pin import Pin

MAX_STATE = 1 << 18
"""Bytes of a replica's state, compressed and as text, up to which it is carried from batch to batch."""

_KEPT = 3
"""Files that stay: a batch that is not committed yet began with the newest one or the one before it."""

log = logging.getLogger(__name__)


def state_text(state: bytes) -> str | None:
    """A replica's state as it travels to the driver in its note; None where it is too large for that."""
    text = base64.b85encode(zlib.compress(state, 1)).decode("ascii")
    return text if len(text) <= MAX_STATE else None


def state_of(text: str) -> bytes:
    """The inverse of ``state_text``. Raises ValueError on anything else."""
    try:
        return zlib.decompress(base64.b85decode(text))
    except zlib.error as error:
        raise ValueError(f"a partitioner's state is damaged: {error}") from None


@dataclass(frozen=True)
class LearnedState:
    """What replicas ended a batch with: ``states`` by replica, as ``state_text`` makes them."""

    algorithm: str
    parameters: Mapping[str, Any]
    seed: int
    states: tuple[str, ...]

    def serves(self, pin: Pin) -> bool:
        """Whether a batch under this pin can begin with it."""
        return (self.algorithm, self.parameters, self.seed) == (pin.algorithm, pin.parameters, pin.seed)


class Policies:
    """The policies in a checkpoint: one file per batch that has left one, of which the newest ones stay."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._newest: tuple[int, LearnedState] | None = None
        self._looked = False  # whether ``_newest`` is known

    def _find_newest(self) -> tuple[int, LearnedState] | None:
        """What an earlier run has left."""
        readable = ((batch, self.read(batch)) for batch in reversed(_batches(self._folder)))
        return next(((batch, policy) for batch, policy in readable if policy is not None), None)

    def attach(self, pin: Pin) -> Pin:
        """The pin, with the newest policy that a batch under it can begin with."""
        if not self._looked:
            self._newest, self._looked = self._find_newest(), True
        if self._newest is None or not self._newest[1].serves(pin):
            return replace(pin, policy=None)
        return replace(pin, policy=self._newest[0])

    def keep(self, batch: int, pin: Pin, states: Mapping[int, str | None]) -> None:
        """Write what the replicas of a finished batch ended with, before any other batch is pinned to it.

        A replica that had no slice keeps what it began with. Where a state is too large to be carried (None), the
        next batch begins without any, rather than with an older one.

        Raises OSError where nothing can be written; then later batches begin with an older policy.
        """
        if not states:
            return
        self._looked = True
        if None in states.values():
            self._newest = None
            return
        known = self._begun_with(pin) if len(states) < pin.replicas else {}
        known |= {replica: state for replica, state in states.items() if state is not None}
        policy = LearnedState(pin.algorithm, dict(pin.parameters), pin.seed, tuple(known[i] for i in sorted(known)))
        self._folder.mkdir(exist_ok=True)
        partial = self._folder / "new"
        with partial.open("w", encoding="utf-8") as file:
            json.dump(asdict(policy), file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self._folder / f"{batch}.json")
        self._newest = batch, policy
        for old in _batches(self._folder)[:-_KEPT]:
            (self._folder / f"{old}.json").unlink(missing_ok=True)

    def read(self, batch: int) -> LearnedState | None:
        """What a batch has left; None, with a warning, where the file is gone or damaged."""
        path = self._folder / f"{batch}.json"
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            return LearnedState(**content | {"states": tuple(content["states"])})
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("the policy in %s cannot be read, so partitioners learn anew: %s", path, error)
            return None

    def _begun_with(self, pin: Pin) -> dict[int, str]:
        """What the replicas of a batch began with, as far as a policy has it for each of them."""
        policy = None if pin.policy is None else self.read(pin.policy)
        return dict(enumerate(policy.states)) if policy and len(policy.states) == pin.replicas else {}

    def beginnings(self, pin: Pin) -> list[bytes]:
        """The state with which each replica of a batch begins; empty where they begin without one."""
        policy = None if pin.policy is None else self.read(pin.policy)
        if policy is None:
            return []
        try:
            return beginnings(
                pin.algorithm,
                [state_of(text) for text in policy.states],
                workers=pin.workers,
                replicas=pin.replicas,
                seed=pin.seed,
                parameters=pin.parameters,
            )
        except ValueError as error:
            log.warning("the policy of batch %d cannot be used, so partitioners learn anew: %s", pin.policy, error)
            return []


def _batches(folder: Path) -> list[int]:
    """The batches that have left a policy, in order."""
    return sorted(int(path.stem) for path in folder.glob("*.json") if path.stem.isdigit())
