"""What ``millrace top`` follows, where watches end early or bring what is no JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from millrace_operator.commands.cluster import Cluster
from millrace_operator.commands.user_queries import WatchedQueries


class Server:
    """Lists no queries; each watch ends at once, or with an error."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def request(self, *_: Any, **__: Any) -> dict[str, Any]:
        return {"items": [], "metadata": {"resourceVersion": "1"}}

    def lines(self, *_: Any) -> Iterator[Any]:
        if self.error is not None:
            raise self.error
        yield from ()


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Follow a server for three watches; return the queries and the pauses between watches."""

    def follow(server: Server) -> tuple[WatchedQueries, list[float]]:
        queries = WatchedQueries(Cluster(cast(Any, server), "http://lab", "lab", "cabs"), everywhere=False)
        pauses: list[float] = []

        def wait(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 3:
                queries.stop()

        monkeypatch.setattr(queries._stopped, "wait", wait)
        queries._follow()
        return queries, pauses

    return follow


def test_watches_that_end_at_once_are_opened_again_after_pauses(followed: Any) -> None:
    queries, pauses = followed(Server())
    assert not queries.problem
    assert all(0 < pause <= 1 for pause in pauses)


def test_an_unexpected_error_is_shown_and_following_goes_on(followed: Any) -> None:
    queries, pauses = followed(Server(ValueError("no JSON")))
    assert queries.problem == "ValueError: no JSON"
    assert len(pauses) == 3
