"""What the servers of a query say before Spark has started: a missing topic, or a refused login, ends a run early.

Sources and sinks ask their servers again once Spark runs, with more patience. So these checks need not be complete, and
an error that may pass does not count.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from millrace_api.errors import MillraceError, TransientError
from millrace_api.model.status import FailureClass
from millrace_jobs.run.failures import attributed_to
from millrace_jobs.sources.base import Source

log = logging.getLogger(__name__)

PATIENCE = 1.0
"""Seconds to wait for answers before Spark's session is created; Spark's JVM starts meanwhile."""


class ServerChecks:
    """The checks of all servers, each in a thread of its own; they begin when this object is made.

    Args:
        sources: the sources by name.
        of_sinks: the checks of the sinks' servers.
    """

    def __init__(self, sources: Mapping[str, Source], of_sinks: Iterable[Callable[[], None]]) -> None:
        self._refusals: dict[int, MillraceError] = {}
        # daemons: a server that does not answer must not hold up the end of this process
        self._threads = [
            threading.Thread(target=self._run, args=(place, *check), daemon=True)
            for place, check in enumerate(_all(sources, of_sinks))
        ]
        for thread in self._threads:
            thread.start()

    def wait(self, is_stopped: Callable[[], bool], seconds: float) -> None:
        """Wait for the answers of all servers, but no longer than this, and not where ``is_stopped`` ends the wait.

        Raises:
            MillraceError: a server has refused.
        """
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            while thread.is_alive() and time.monotonic() < deadline and not self._refusals and not is_stopped():
                thread.join(0.02)
        if not is_stopped():
            self.require_accepted()

    def require_accepted(self) -> None:
        """Raise MillraceError if a server has refused by now; of several, the first in the order of the query."""
        if self._refusals:
            raise self._refusals[min(self._refusals)]

    def _run(self, place: int, part: FailureClass, check: Callable[[], None]) -> None:
        try:
            with attributed_to(part):
                check()
        except TransientError:
            pass  # Spark's start is not held up for it
        except MillraceError as error:
            self._refusals[place] = error
        except Exception:  # of a library: the run meets it again, and says what it means
            log.debug("the check of a server failed", exc_info=True)


def _all(
    sources: Mapping[str, Source], of_sinks: Iterable[Callable[[], None]]
) -> Iterator[tuple[FailureClass, Callable[[], None]]]:
    for source in sources.values():
        yield FailureClass.SOURCE, source.check_server
    for check in of_sinks:
        yield FailureClass.SINK, check
