"""What a replica knows from the control topic: its work, its instructions, and what other replicas say."""

from __future__ import annotations

from collections.abc import Sequence

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.dedicated.control_topic import ControlReader, ControlRecord
from millrace_jobs.dedicated.instructions import DRIVER, PLAN, WORK, Instructions, Work


class Directions:
    """The newest work and instructions of the driver.

    Args:
        reader: a reader of the control topic.
        driver: id of the only driver that is listened to; empty for any. The replicas of a run that another one has
            taken over from must not work for the new one, whose own replicas they would fence.
    """

    def __init__(self, reader: ControlReader, driver: str = "") -> None:
        self._reader = reader
        self._expected = driver
        self._driver = ""
        self._work: Work | None = None
        self._instructions: Instructions | None = None

    @property
    def work(self) -> Work | None:
        """The newest work; None if there is none yet."""
        return self._work

    @property
    def current(self) -> tuple[Work, Instructions] | None:
        """The work, and the instructions for it; None until the driver has given both."""
        work, instructions = self._work, self._instructions
        if not self._reader.is_current or work is None or instructions is None:
            return None
        if self._expected and self._driver != self._expected:
            return None
        return (work, instructions) if instructions.generation == work.generation else None

    def follow(self, seconds: float = 0.0) -> Sequence[ControlRecord]:
        """Adopt what the driver has written since the last call, and return the records of other replicas.

        Args:
            seconds: how long to wait if there is nothing.

        Raises:
            MillraceError: Kafka fails, or the driver has written what this version does not know.
        """
        others = []
        for record in self._reader.poll(seconds):
            try:
                if record.key == WORK:
                    self._work = Work.of(record.value)
                elif record.key == PLAN:
                    self._instructions = Instructions.of(record.value)
                elif record.key == DRIVER:
                    self._adopt_driver(record.value.decode(errors="replace"))
                else:
                    others.append(record)
            except ValueError as error:
                message = f"the record {record.key} of the control topic cannot be read: {error}"
                raise MillraceError(Problem(message, "run partitioners in the version of the driver")) from error
        return others

    def _adopt_driver(self, driver: str) -> None:
        """Note which driver writes from here on; a run's own replicas await its first instructions."""
        if self._expected and driver != self._driver:
            self._instructions = None
        self._driver = driver
