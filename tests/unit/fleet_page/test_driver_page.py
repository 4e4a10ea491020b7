"""The page of a driver, from a server that answers as an API server's proxy does."""

import pytest

from millrace_operator.page.driver_page import MOST_BYTES

from .driver_proxy import configured, proxy
from .fleets import ReviewsByList, ask, bearer, pages, query, served, status

RAW, FRAMED = "/queries/cabs/fares/driver", {"Sec_Fetch_Dest": "iframe"}


def test_it_is_asked_for_with_the_readers_token_and_shown_in_a_sandbox():
    reviews = ReviewsByList(admin=None)
    with proxy() as (drivers, asked), served(pages([query()], reviews, drivers=drivers)) as server:
        code, headers, text = ask(server, RAW, **FRAMED, **bearer("admin"))
        assert 'href="fares/live"' in ask(server, "/queries/cabs/fares", **bearer("admin"))[2]
        assert ask(server, "/queries/cabs/fares/page.css")[0] == 200
    assert (code, text) == (200, "<title>fares</title>")
    assert headers["Content-Security-Policy"].startswith("sandbox; default-src 'none'; style-src 'self';")
    assert headers["Content-Security-Policy"].endswith("frame-ancestors 'self'")
    assert "script-src" not in headers["Content-Security-Policy"]
    assert asked == [("/api/v1/namespaces/cabs/pods/fares-driver-0:8080/proxy/", "Bearer admin")]


def test_a_page_of_the_operator_says_whose_it_is_and_has_it_in_a_frame():
    with proxy() as (drivers, asked), served(pages([query()], ReviewsByList(admin=None), drivers=drivers)) as server:
        code, headers, text = ask(server, "/queries/cabs/fares/live", **bearer("admin"))
    assert (code, asked) == (200, [])
    assert "This page was written by the code of cabs/fares. Never enter a token or password in it." in text
    assert '<iframe src="driver" title="The driver of cabs/fares" sandbox=""' in text
    assert "frame-src 'self'" in headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]


@pytest.mark.parametrize("headers", [{}, {"Sec_Fetch_Dest": "document"}, {"Sec_Fetch_Dest": "object"}])
def test_it_is_not_shown_outside_a_frame_where_it_could_ask_for_a_token(headers):
    with proxy() as (drivers, asked), served(pages([query()], ReviewsByList(admin=None), drivers=drivers)) as server:
        code, _, text = ask(server, RAW, **headers, **bearer("admin"))
    assert (code, asked) == (403, [])
    assert "only shown in a frame" in text


def test_the_frame_says_why_there_is_no_page():
    with (
        proxy(code=403) as (drivers, _),
        served(pages([query()], ReviewsByList(admin=None), drivers=drivers)) as server,
    ):
        code, headers, text = ask(server, RAW, **FRAMED, **bearer("admin"))
    assert (code, "you may not get pods/proxy in namespace cabs" in text) == (502, True)
    assert "frame-ancestors 'self'" in headers["Content-Security-Policy"]


HOSTILE = ["x/../..", "x?", "x#", "a%2fb", "..", "", "X", "x\n", "x:9"]


@pytest.mark.parametrize("pod", HOSTILE)
def test_the_pod_is_that_of_the_querys_name_whatever_its_status_says(pod):
    queries = [query(reported=status(driver={"pod": pod, "restarts": 0}))]
    with proxy() as (drivers, asked), served(pages(queries, ReviewsByList(admin=None), drivers=drivers)) as server:
        ask(server, RAW, **FRAMED, **bearer("admin"))
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
            assert ask(server, RAW, **FRAMED, **bearer("admin"))[0] == 404
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
