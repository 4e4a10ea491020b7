"""The driver's side of a change of state partitions while its query runs; ``checkpoint.handover`` has the whole."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.checkpoint.checkpoint import Checkpoint
from millrace_jobs.checkpoint.handover import Handover

PATIENCE = 60.0
"""Seconds that a stopped query waits for its copy, which is a batch or two behind."""

_POLL_SECONDS = 0.02


class StateSwitch:
    """Puts a copy of the state with another number of partitions in place of the driver's own, between two batches.

    In an object store no copy is handed over.
    """

    def __init__(self, checkpoint: Checkpoint, patience: float = PATIENCE) -> None:
        self._checkpoint = checkpoint
        self._handover = Handover(checkpoint.root) if isinstance(checkpoint.root, Path) else None
        self._patience = patience
        self._outdated: Path | None = None
        if self._handover is not None:
            self._handover.clear_abandoned()

    def is_requested(self) -> bool:
        """Whether a copy waits for the query to stop after its running batch."""
        return self._handover is not None and self._handover.requested() is not None

    def switch(self, stop_requested: Callable[[], bool]) -> str:
        """Switch to the copy once it has the last batch of the query, which has stopped; return what has happened.

        Raises:
            MillraceError: another process is the driver, or may be; or the copy cannot be put in place.
        """
        handover, checkpoint = self._handover, self._checkpoint
        partitions = None if handover is None else handover.requested()
        last = checkpoint.last_batch()
        if handover is None or partitions is None or last.committed is None or last.unfinished is not None:
            return "the state partitions stay as they are: the query did not stop after a whole batch"
        began, before = time.monotonic(), checkpoint.state_partitions
        handover.stop_at(last.committed)
        while handover.offered() != last.committed:
            if why := self._why_not(began, stop_requested):
                handover.withdraw()
                return f"the state partitions stay as they are: {why}"
            time.sleep(_POLL_SECONDS)
        checkpoint.require_lease()
        outdated = checkpoint.spark
        try:
            is_there = checkpoint.adopt_spark(handover.copy)
        except OSError as error:
            why = f"the changed state cannot be put in place in {checkpoint.root}: {error.strerror or error}"
            raise MillraceError(
                Problem(why, "free some space there, then run the query again: nothing is lost")
            ) from None
        if not is_there:
            return "the state partitions stay as they are: the process that made the copy has removed it"
        checkpoint.note_state_partitions(partitions)
        assert isinstance(outdated, Path)
        self._outdated = outdated
        handover.withdraw()
        return f"state partitions: {before} -> {partitions}, after {time.monotonic() - began:.1f} s for the last batch"

    def clean_up(self) -> None:
        """Remove the state as it was before the switch; call it after the first batch since.

        The results would wait for the removal of many files otherwise, so it also has a thread of its own. The next
        driver removes what is left.
        """
        if self._outdated is not None:
            threading.Thread(target=shutil.rmtree, args=(self._outdated, True), daemon=True).start()
            self._outdated = None

    def _why_not(self, began: float, stop_requested: Callable[[], bool]) -> str:
        assert self._handover is not None
        if stop_requested():
            return "the run ends"
        if self._handover.is_abandoned():
            return "the process that made the copy has ended"
        if time.monotonic() - began > self._patience:
            return f"the copy did not have the last batch after {self._patience:.0f} s"
        return ""
