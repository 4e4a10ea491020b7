"""Elections in simulated time: candidates pause and die, and the network loses and delays requests."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, replace

from millrace_operator.leadership.election import Election, ElectionStep, Record, Timing

TIMING = Timing(15)

TICK = 1e-6
"""Smallest step of time in seconds, so that rounding cannot stop the clock."""


class RefusedError(Exception):
    """The stored version differs from the one in the request."""


class Lease:
    """A record as the API server keeps it. A replacement must name the stored version."""

    def __init__(self):
        self.record = None
        self._versions = itertools.count(1)

    def write(self, record):
        if (self.record.version if self.record else "") != record.version:
            raise RefusedError
        self.record = replace(record, version=str(next(self._versions)))
        return self.record


@dataclass
class Faults:
    """Delays in seconds, and probabilities of faults."""

    delay: float = 0.0
    lost: float = 0.0
    paused: float = 0.0
    longest_pause: float = 0.0


class Simulation:
    """Candidates with different clock offsets, on a true time that starts at 0."""

    def __init__(self, offsets, chance, faults):
        self.chance, self.faults, self.lease = chance, faults, Lease()
        self.now = 0.0
        self.elections = {f"candidate-{i}": Election(f"candidate-{i}", TIMING) for i in range(len(offsets))}
        self.offsets = dict(zip(self.elections, offsets, strict=True))
        self.gone = set()
        self._numbers = itertools.count()
        self._events = []
        for name in self.elections:
            self._at(self.now + chance.uniform(0, 3), name, self._decide)

    def clock(self, name):
        return self.now + self.offsets[name]

    def leaders(self):
        alive = self.elections.keys() - self.gone
        return [name for name in sorted(alive) if self.elections[name].leads(self.clock(name))]

    def run(self, until, after_each=lambda: None):
        """Process all events before a true time."""
        while self._events and self._events[0][0] <= until:
            self.now, _, name, act = heapq.heappop(self._events)
            if name not in self.gone:
                act(name)
                after_each()
        self.now = until

    def release(self, name):
        """Release the lease gracefully, with a request that arrives."""
        record = self.elections[name].released()
        self.gone.add(name)
        if record is not None:
            self.lease.write(record)

    def _at(self, when, name, act):
        heapq.heappush(self._events, (when, next(self._numbers), name, act))

    def _later(self, when, name, act):
        """Return the time at which the process continues. It may be paused."""
        if self.chance.random() < self.faults.paused:
            when += self.chance.uniform(0, self.faults.longest_pause)
        self._at(when, name, act)

    def _decide(self, name):
        action, seconds = self.elections[name].next(self.clock(name))
        if action is ElectionStep.WAIT:
            self._later(self.now + max(seconds, TICK), name, self._decide)
        else:
            record = self.elections[name].wanted() if action is ElectionStep.WRITE else None
            sent = self.clock(name)
            self._later(self.now, name, lambda name: self._send(name, record, sent))

    def _send(self, name, record, sent):
        """Send a request. The process may have been paused since it read its clock and decided."""
        there, back = (self.chance.uniform(0, self.faults.delay) for _ in range(2))
        lost_there, lost_back = (self.chance.random() < self.faults.lost for _ in range(2))
        late = self.now + TIMING.request
        answer = []
        if not lost_there:
            self._at(self.now + there, "network", lambda _: answer.append(self._serve(record)))
        if lost_there or lost_back or there + back > TIMING.request:
            self._later(late, name, self._give_up)
        else:
            self._later(self.now + there + back, name, lambda name: self._take(name, answer[0], record, sent))

    def _serve(self, record):
        try:
            return self.lease.record if record is None else self.lease.write(record)
        except RefusedError as refusal:
            return refusal

    def _take(self, name, answer, record, sent):
        if isinstance(answer, RefusedError):
            self.elections[name].failed(self.clock(name))
        elif record is None:
            self.elections[name].read(answer, self.clock(name))
        else:
            self.elections[name].written(answer, sent, self.clock(name))
        self._decide(name)

    def _give_up(self, name):
        self.elections[name].failed(self.clock(name))
        self._decide(name)


def held_by(name, version="7", seconds=15):
    """Return a lease record with the given holder."""
    return Record(name, seconds, version)
