"""The live page of a run, as the HTTP server serves it: rendered when a client asks, and never in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from threading import Lock

from millrace_jobs.page.history import RunHistory
from millrace_jobs.page.lookup_box import looked_up
from millrace_jobs.page.rendering import render
from millrace_jobs.page.view import RunFacts, page_view
from millrace_support.http_server import Page, PageSource
from millrace_support.pages.serving import asset, html_page

FRESH_SECONDS = 1.0
"""Seconds for which a rendered page is served again, so that any number of clients costs one rendering a second."""


SEEN_SECONDS = 3.0
"""Seconds in which a page that is open asks for the newest figures: somewhat longer than its script waits."""

_POLL_SECONDS = 0.05


class LivePage:
    """The page of one run.

    Args:
        history: what is remembered of the run.
        facts: what else is known of it.
        clock: returns the seconds since 1970.
    """

    def __init__(self, history: RunHistory, facts: RunFacts, clock: Callable[[], float] = time.time) -> None:
        self._history, self._facts, self._clock = history, facts, clock
        self._lock = Lock()
        self._rendered: tuple[float, bytes, bool] = (float("-inf"), b"", False)
        self._asked = float("-inf")
        self._has_shown_end = False

    def show(self, facts: RunFacts) -> None:
        """Show these facts from now on."""
        self._facts = facts

    def wait_until_seen(self, seconds: float = SEEN_SECONDS) -> None:
        """Wait until a client that follows the page has got one that shows how the run ended.

        Returns at once if one has, or if no client has asked within the last seconds; after this time at the latest.
        """
        until = time.monotonic() + seconds
        with self._lock:
            self._rendered = (float("-inf"), b"", False)
        while self._clock() - self._asked < seconds and not self._has_shown_end and time.monotonic() < until:
            time.sleep(_POLL_SECONDS)

    @property
    def paths(self) -> Mapping[str, PageSource]:
        """What answers each path: the page and its files."""
        return {
            "/": self._page,
            "/page.css": lambda _: asset("page.css"),
            "/page.js": lambda _: asset("page.js"),
        }

    def _page(self, parameters: str) -> Page:
        result = looked_up(parameters, self._facts.lookups) if self._facts.lookups and parameters else None
        self._asked = self._clock()
        if result is None:
            body, shows_end = self._fresh()
            self._has_shown_end |= shows_end
            return html_page(body)
        now = self._clock()
        return html_page(render(page_view(self._history.snapshot(), self._facts, now), result))

    def _fresh(self) -> tuple[bytes, bool]:
        """Return the page without a look-up, rendered within the last second, and whether it shows the run's end."""
        with self._lock:
            now = self._clock()
            at, body, shows_end = self._rendered
            if not at <= now < at + FRESH_SECONDS:
                run = self._history.snapshot()
                body, shows_end = render(page_view(run, self._facts, now)), bool(run.outcome or run.failure)
                self._rendered = now, body, shows_end
            return body, shows_end
