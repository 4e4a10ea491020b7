"""Feed batches one by one, each under its own plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from millrace_api.model.plan import Plan
from millrace_jobs.pipeline.progress import BatchReport
from millrace_jobs.plan.control import Pin, read_control


@dataclass(frozen=True)
class Arrival:
    """A file to feed, and the plan of the batch that reads it."""

    plan: Plan
    content: bytes


class Feeder:
    """Plan source and watcher of one run, which puts file i into the inbox when the next batch runs under plan i.

    That is when batch i - 1 was reported and the sources read plan i from the control file. File 0 is put there at once,
    since nothing reads it before. ``finished`` is called after the report of the last batch.
    """

    def __init__(self, arrivals: Sequence[Arrival], inbox: Path, control: Path, finished: Callable[[], None]) -> None:
        self.reports: list[BatchReport] = []
        self.messages: list[str] = []
        self._arrivals = list(arrivals)
        self._inbox = inbox
        self._control = control
        self._finished = finished
        self._proposed = self._delivered = self._begun = False

    def current(self) -> Plan | None:
        """Return the plan for this turn of the run loop. The plan's file follows in a later turn."""
        if not self._arrivals or self._delivered:
            return None
        proposes, self._proposed = not self._proposed, True
        if not self._begun or (not proposes and self._is_in_force(self._arrivals[0].plan)):
            self._deliver(self._arrivals[0])
            self._begun = self._delivered = True
        return self._arrivals[0].plan if proposes else None

    def batch(self, report: BatchReport) -> None:
        """Note a finished batch. The batch under a plan's epoch comes before batches without records."""
        self.reports.append(report)
        if self._delivered and report.pin is not None and report.pin.epoch == self._arrivals[0].plan.epoch:
            self._arrivals.pop(0)
            self._proposed = self._delivered = False
            if not self._arrivals:
                self._finished()

    def message(self, text: str) -> None:
        """Keep the message for the test."""
        self.messages.append(text)

    def idle(self, pin: Pin) -> None:
        """Do nothing."""

    def _is_in_force(self, plan: Plan) -> bool:
        control = read_control(self._control)
        return control.pin.epoch == plan.epoch and not control.draining

    def _deliver(self, arrival: Arrival) -> None:
        written = self._inbox.parent / "arriving"
        written.write_bytes(arrival.content)
        written.rename(self._inbox / f"{arrival.plan.epoch:06d}")
