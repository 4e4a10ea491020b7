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
        self._rendered: tuple[float, bytes] = (float("-inf"), b"")
        self._asked = float("-inf")
        self._answers = 0

    def show(self, facts: RunFacts) -> None:
        """Show these facts from now on."""
        self._facts = facts

    def wait_until_seen(self, seconds: float = SEEN_SECONDS) -> None:
        """Wait until a client that follows the page has asked for it once more, so that it shows how the run ended.

        Returns at once if no client has asked within the last seconds, and after this time at the latest.
        """
        until = time.monotonic() + seconds
        answered = self._answers
        with self._lock:
            self._rendered = (float("-inf"), b"")
        while self._clock() - self._asked < seconds and self._answers == answered and time.monotonic() < until:
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
            body = self._fresh()
            self._answers += 1
            return html_page(body)
        now = self._clock()
        return html_page(render(page_view(self._history.snapshot(), self._facts, now), result))

    def _fresh(self) -> bytes:
        """Return the page without a look-up, rendered within the last second."""
        with self._lock:
            now = self._clock()
            at, body = self._rendered
            if not at <= now < at + FRESH_SECONDS:
                body = render(page_view(self._history.snapshot(), self._facts, now))
                self._rendered = now, body
            return body
