"""The page of a driver, from a server that answers as an API server's proxy does."""

import pytest

from millrace_operator.page.driver_page import MOST_BYTES

from .driver_proxy import configured, proxy
from .fleets import ReviewsByList, ask, bearer, pages, query, served, status


def test_it_is_asked_for_with_the_readers_token_and_shown_in_a_sandbox():
    reviews = ReviewsByList(admin=None)
    with proxy() as (drivers, asked), served(pages([query()], reviews, drivers=drivers)) as server:
        code, headers, text = ask(server, "/queries/cabs/fares/live", **bearer("admin"))
        assert 'href="fares/live"' in ask(server, "/queries/cabs/fares", **bearer("admin"))[2]
        assert ask(server, "/queries/cabs/fares/page.css")[0] == 200
    assert (code, text) == (200, "<title>fares</title>")
    assert headers["Content-Security-Policy"].startswith("sandbox; default-src 'none'; style-src 'self';")
    assert "script-src" not in headers["Content-Security-Policy"]
    assert asked == [("/api/v1/namespaces/cabs/pods/fares-driver-0:8080/proxy/", "Bearer admin")]


HOSTILE = ["x/../..", "x?", "x#", "a%2fb", "..", "", "X", "x\n", "x:9"]


@pytest.mark.parametrize("pod", HOSTILE)
def test_the_pod_is_that_of_the_querys_name_whatever_its_status_says(pod):
    reported = status(driver={"pod": pod, "restarts": 0})
    with proxy() as (drivers, asked):
        with served(pages([query(reported=reported)], ReviewsByList(admin=None), drivers=drivers)) as server:
            ask(server, "/queries/cabs/fares/live", **bearer("admin"))
    assert [path for path, _ in asked] == ["/api/v1/namespaces/cabs/pods/fares-driver-0:8080/proxy/"]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_that_no_pod_or_namespace_can_have_are_not_asked_for(name):
    with proxy() as (drivers, asked):
        assert "no driver's pod can have" in drivers.get("token", "cabs", name)
        assert "no driver's pod can have" in drivers.get("token", name, "fares-driver-0")
    assert asked == []


def test_a_query_without_a_driver_has_no_such_page():
    with proxy() as (drivers, asked):
        fleet = pages([query(reported=status(driver=None))], ReviewsByList(admin=None), drivers=drivers)
        with served(fleet) as server:
            assert ask(server, "/queries/cabs/fares/live", **bearer("admin"))[0] == 404
            assert "/live" not in ask(server, "/queries/cabs/fares", **bearer("admin"))[2]
    assert asked == []


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({"code": 403}, "you may not get pods/proxy in namespace cabs"),
        ({"code": 503}, "does not answer with a page (status 503)"),
        ({"code": 302, "location": "http://169.254.169.254/"}, "does not answer with a page (status 302)"),
        ({"kind": "application/json"}, "does not answer with a page (status 200)"),
        ({"body": b"x" * (MOST_BYTES + 1)}, "has more than 1 MiB"),
    ],
)
def test_whatever_else_a_pod_answers_is_not_shown(answer, problem):
    with proxy(**answer) as (drivers, asked):
        found = drivers.get("token", "cabs", "fares-driver-0")
    assert problem in found
    assert len(asked) == 1


def test_a_pod_that_is_not_reached_is_a_reason():
    assert "cannot be reached" in configured("http://127.0.0.1:1").get("token", "cabs", "fares-driver-0")
