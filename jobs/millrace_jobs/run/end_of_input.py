"""The end of a bounded input: the event time that makes all results final, derived from what Spark's operators hold.

``loop`` then runs another batch, whose only record is this time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.streamquery import Emit, Spec
from millrace_jobs.checkpoint.checkpoint import Checkpoint
from millrace_jobs.queries.execution import CompiledQuery
from millrace_jobs.run.held_results import ExecutedPlan, HeldResults, executed_plan, held_results


@dataclass(frozen=True)
class EndOfInput:
    """The closing of a query whose input has ended.

    A batch that brings a later event time moves the watermark, and the batch after it has the results. Operators that
    read others' results can hold more once those have released theirs, so there can be several rounds.
    """

    spark: SparkSession
    spec: Spec
    query: CompiledQuery
    checkpoint: Checkpoint

    def closing_time(self, stream: StreamingQuery | None, latest_event: int) -> int | None:
        """Return the event time that releases what the operators hold back; None if they hold nothing.

        Args:
            stream: the Spark query that ran last in this process.
            latest_event: the latest event time that this process has seen.

        Returns:
            Microseconds since 1970, as all other event times here.

        Raises:
            MillraceError: an operator still holds results that the watermark has passed.
        """
        watermark = self._releasing_watermark(executed_plan(stream), latest_event)
        return None if watermark is None else watermark * 1000 + self._delay

    @property
    def _delay(self) -> int:
        """The longest delay of a source's watermark, in microseconds."""
        sources = self.spec.sources.values()
        return max((source.watermark.delay.microseconds for source in sources if source.watermark), default=0)

    def _releasing_watermark(self, plan: ExecutedPlan | None, latest_event: int) -> int | None:
        """Return the watermark, in milliseconds, that releases what is held back; None if nothing is.

        Without the plan of a batch of this process, it is not known what the state holds. Then 1 ms more makes a batch
        that has a plan, and makes hardly a record late. The same follows where a process died after a watermark was
        reached, and before the batch that runs under it.
        """
        last, reached = self.checkpoint.last_batch().committed, self.checkpoint.watermark_ms()
        if last is None:
            return None
        if plan is None:
            return reached + 1 if self._may_hold_results(last) else None
        held = self._held(plan, latest_event)
        if not held:
            self.checkpoint.note_released(last)
            return None
        until, passed = max(each.until for each in held), self.checkpoint.batch(last).watermark
        if until <= passed:
            raise _missing(held, self.checkpoint)
        return max(until, reached + 1)

    def _held(self, plan: ExecutedPlan, latest_event: int) -> list[HeldResults]:
        """Return what the operators of a plan hold, as far as it becomes results when it is final.

        A timer of the operators on tables is only the next one of its bucket. When the last one is due follows from
        the latest event time.
        """
        held = held_results(plan, self.spark, self.checkpoint.spark, timers=self._waits)
        longest = self.query.execution.results.longest
        if longest is None:
            return held
        latest = max(latest_event, self.checkpoint.watermark_ms() * 1000 + self._delay)
        last = (latest + longest) // 1000 + 1
        return [replace(each, until=max(each.until, last)) for each in held]

    @property
    def _waits(self) -> bool:
        """Whether groups, and results of operators with timers, are emitted when they are final."""
        return self.spec.emit is not Emit.ON_UPDATE or self.query.execution.results.waits

    def _may_hold_results(self, last: int) -> bool:
        """Whether the state after the last batch may hold results: earlier runs have not found that it does not.

        What has no groups and still has state is a join, which holds rows without a partner, however it emits.
        """
        has_state = (self.checkpoint.spark / "state").is_dir()
        return has_state and (self._waits or not self.query.aggregates) and self.checkpoint.released != last


def _missing(held: Sequence[HeldResults], checkpoint: Checkpoint) -> MillraceError:
    left = ", ".join(f"{each.rows} rows of {each.operator}" for each in held)
    message = f"results are missing: the input has ended, and Spark's state still has {left}"
    return MillraceError(Problem(message, f"report this as an error of Millrace, with the query and {checkpoint.root}"))
