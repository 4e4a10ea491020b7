"""What ``millrace top`` follows comes through the faults of a real API server: its absence, and lost history."""

from __future__ import annotations

from functools import partial

import pytest

from lab.control_plane import running_control_plane
from lab.waiting import wait_until
from millrace_api.errors import MillraceError
from millrace_operator.commands.cluster import connect
from millrace_operator.commands.top_screen import picture
from millrace_operator.commands.user_queries import WatchedQueries
from unit.api.documents import MINIMAL, PYTHON
from unit.commands.queries import NOW, drawn

from .conftest import CRD

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(1800)]

soon = partial(wait_until, seconds=120.0)


def names(queries):
    return sorted(item.name for item in queries.items)


@pytest.fixture
def following():
    """Follows queries until the end of the test."""
    started = []

    def follow(cluster, version=None):
        queries = WatchedQueries(cluster, everywhere=False)
        if version is not None:
            queries._version = version
        queries.start()
        started.append(queries)
        return queries

    yield follow
    for each in started:
        each.stop()


def test_history_that_the_server_has_lost_is_made_up_for_by_a_list(plane, namespace, kubectl, following, monkeypatch):
    lists = []
    listed = WatchedQueries._listed
    monkeypatch.setattr(WatchedQueries, "_listed", lambda self: lists.append(1) or listed(self))
    queries = following(connect(plane.kubeconfig, None, namespace), version="1")
    soon(lambda: len(lists) == 2)
    kubectl("apply", "-f", "-", document=MINIMAL)
    soon(lambda: names(queries) == ["trips-by-cell"])
    assert not queries.problem
    assert len(lists) == 2


@pytest.mark.in_turn
def test_a_server_without_the_crd_is_refused_and_one_that_comes_back_is_followed_again(tmp_path, following):
    with running_control_plane(tmp_path) as plane:
        cluster = connect(plane.kubeconfig, None, None)
        with pytest.raises(MillraceError, match=r"has no streamqueries.millrace.io; install the CRD"):
            WatchedQueries(cluster, everywhere=True)
        assert plane.kubectl("apply", "--server-side", "-f", CRD).returncode == 0
        soon(lambda: plane.kubectl("get", "sq").returncode == 0)
        assert plane.kubectl("apply", "-f", "-", document=MINIMAL).returncode == 0
        queries = following(cluster)
        assert names(queries) == ["trips-by-cell"]
        plane.part("kube-apiserver").kill()
        soon(lambda: queries.problem)
        assert names(queries) == ["trips-by-cell"]
        assert cluster.server in queries.problem
        seen = drawn(picture(queries, "lab", NOW, everywhere=True))
        assert seen.startswith("lab  1 query  12:00:00Z  q quits\nnot up to date: the API server")
        plane.restart("kube-apiserver")
        assert plane.kubectl("apply", "-f", "-", document=PYTHON).returncode == 0
        soon(lambda: names(queries) == ["top-routes", "trips-by-cell"])
        assert not queries.problem
