"""What a run says of its records at its end: nothing was read, windows were closed, records were late or incomplete."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from millrace_api.model.streamquery import StreamQuery
from millrace_api.sql.nested_times import shown_times, with_flat_times
from millrace_jobs.checkpoint.checkpoint import Checkpoint
from millrace_jobs.display.display import RunTally
from millrace_jobs.pipeline.incomplete import why_incomplete
from millrace_jobs.run.inputs import unread_note
from millrace_jobs.run.late_records import all_closed, closed_until, why_late
from millrace_jobs.sources.base import Source
from millrace_support.run_figures import Outcome


class EndNotes:
    """The notes for the end of a run that is about to begin: compares the checkpoint then with the present one."""

    def __init__(self, query: StreamQuery, sources: Mapping[str, Source], checkpoint: Checkpoint) -> None:
        self._query, self._sources, self._checkpoint = query, sources, checkpoint
        self._before, self._closed = checkpoint.committed(), closed_until(checkpoint)

    def of(self, outcome: Outcome, tally: RunTally) -> Iterator[str]:
        """Yield what is worth saying of a run with this outcome and these records, a sentence each."""
        spec, until = self._query.spec, closed_until(self._checkpoint)
        if outcome == "finished":
            closes = until is not None and until != self._closed
            unread = not tally.rows and not tally.rejected
            if unread and (note := unread_note(spec, self._sources, self._checkpoint, self._before, closes=closes)):
                yield note
            if until is not None and closes:
                yield all_closed(until)
        if tally.late:
            yield why_late(tally.late, spec, before_1970=tally.before_1970, closed=self._closed)
        if tally.incomplete:
            yield shown_times(why_incomplete(tally.incomplete, with_flat_times(spec)), spec)
