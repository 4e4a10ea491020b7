import logging
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from time import sleep

import pytest
from kubernetes.client import ApiException

from millrace_operator.page import access, fleet
from millrace_operator.page import server as page_server
from millrace_operator.page.access import Access
from millrace_operator.page.fleet import row_of
from millrace_operator.page.login_page import MOST_TOKEN
from millrace_operator.page.server import COOKIE, MOST_BODY, RENDERINGS, FleetServer
from millrace_support.bounded_server import CONNECTION_SECONDS
from millrace_support.pages.verdict import PageFinding, Severity

from .fleets import (
    FAILING,
    ReviewsByList,
    a_mixed_fleet,
    ask,
    bearer,
    cache_of,
    log_in,
    pages,
    pages_of,
    query,
    served,
)


@pytest.fixture
def reviews():
    return ReviewsByList(admin=None, cabs=["cabs"], shops=["shops"], stranger=[])


@pytest.fixture
def server(reviews):
    with served(pages(a_mixed_fleet(), reviews)) as started:
        yield started


def test_without_a_login_there_is_a_form_and_no_name(server):
    status, headers, text = ask(server)
    assert (status, headers["Content-Type"]) == (401, "text/html; charset=utf-8")
    assert 'action="login"' in text
    assert 'type="password"' in text
    assert "cabs" not in text
    assert ask(server, "/queries/cabs/fares-by-zone")[0] == 401


def test_pages_load_nothing_from_elsewhere_and_are_not_stored(server):
    for path in ("/", "/queries/cabs/fares-by-zone", "/page.css", "/page.js"):
        _, headers, _ = ask(server, path, **bearer("admin"))
        assert headers["Content-Security-Policy"].startswith("default-src 'none'; style-src 'self'; script-src 'self'")
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert (headers["Cache-Control"], headers["X-Content-Type-Options"]) == ("no-store", "nosniff")
        assert headers["Referrer-Policy"] == "same-origin"  # else forms of these pages would have the origin null
        assert headers["X-DNS-Prefetch-Control"] == "off"


def test_a_tenant_sees_the_queries_of_their_namespaces_and_no_trace_of_others(server):
    _, _, text = ask(server, **bearer("cabs"))
    assert "trips-by-cell" in text
    assert "shops" not in text
    assert "orders" not in text
    assert "2 of 4 queries need attention" in text
    assert "No queries" in ask(server, **bearer("stranger"))[2]
    assert "3 of 8 queries need attention" in ask(server, **bearer("admin"))[2]


def test_a_query_that_may_not_be_seen_is_as_if_it_did_not_exist(server):
    there, missing = (ask(server, path, **bearer("cabs")) for path in ("/queries/shops/orders", "/queries/shops/none"))
    assert there[0] == missing[0] == 404
    assert there[2] == missing[2]
    assert ask(server, "/queries/shops/orders", **bearer("shops"))[0] == 200


def test_a_login_gives_the_browser_a_number_and_not_the_token(server):
    status, headers, _ = ask(server, "/login", "POST", {"token": " cabs\n"})
    assert status == 303
    cookie, *attributes = headers["Set-Cookie"].split("; ")
    assert attributes == ["HttpOnly", "SameSite=Strict"]
    assert "cabs" not in cookie
    assert "trips-by-cell" in ask(server, Cookie=cookie)[2]
    behind_tls = ask(server, "/login", "POST", {"token": "cabs"}, X_Forwarded_Proto="https")[1]["Set-Cookie"]
    assert "; Secure" in behind_tls
    origin = {"Origin": "https://fleet.example", "Host": "fleet.example"}
    assert "; Secure" in ask(server, "/login", "POST", {"token": "cabs"}, **origin)[1]["Set-Cookie"]


@pytest.mark.parametrize("others", ['prefs={"a":1}; {}', "{}; a=b=c; =; ;", "x-{}; y; {}", 'a="; {}', "{}; {}"])
def test_other_cookies_of_the_host_do_not_hide_the_session(server, others):
    cookie = log_in(server, "cabs")
    assert ask(server, Cookie=others.replace("{}", cookie))[0] == 200


@pytest.mark.parametrize("others", ["{}; {}x", f"{COOKIE}=; {{}}", '{}"', "x-{}", "{}\t1"])
def test_two_numbers_that_differ_and_numbers_that_are_none_are_no_session(server, others):
    cookie = log_in(server, "cabs")
    other = log_in(server, "shops")
    assert ask(server, Cookie=others.replace("{}", cookie))[0] == 401
    assert ask(server, Cookie=f"{other}; {cookie}")[0] == 401
    assert ask(server, Cookie=cookie)[0] == 200


def test_a_logout_ends_the_session(server):
    cookie = log_in(server, "cabs")
    status, headers, _ = ask(server, "/logout", "POST", {}, Cookie=cookie)
    assert (status, headers["Set-Cookie"].split("; ")[-1]) == (303, "Max-Age=0")
    assert ask(server, Cookie=cookie)[0] == 401


def test_a_session_ends_with_its_token(reviews):
    clock = [0.0]
    with served(pages_of([cache_of(a_mixed_fleet())], Access(reviews, lambda: clock[0]))) as server:
        cookie = log_in(server, "cabs")
        del reviews.rights["cabs"]  # the token was revoked
        clock[0] += 61
        assert ask(server, Cookie=cookie)[0] == 401


@pytest.mark.parametrize("token", ["", "wrong", "two words", "x" * (MOST_TOKEN + 1), "cabs\x00"])
def test_a_token_that_is_none_is_refused_with_the_form(server, token):
    status, headers, text = ask(server, "/login", "POST", {"token": token})
    assert (status, headers["Set-Cookie"]) == (401, None)
    assert 'role="alert"' in text


def test_many_refused_tokens_make_their_address_wait_and_end_no_session(server, reviews):
    cookie = log_in(server, "cabs")
    answers = [ask(server, "/login", "POST", {"token": f"wrong-{number}"})[0] for number in range(30)]
    assert answers[0] == 401
    assert answers[-1] == 429
    assert sum(each[0] == "token" for each in reviews.asked) < 30  # the API server is spared the rest
    assert ask(server, Cookie=cookie)[0] == 200


def test_refused_tokens_do_not_lock_out_the_known_tokens_of_their_address(reviews):
    clock = [0.0]
    with served(pages_of([cache_of(a_mixed_fleet())], Access(reviews, lambda: clock[0]))) as server:
        assert ask(server, **bearer("cabs"))[0] == 200
        answers = [ask(server, **bearer(f"wrong-{number}"))[0] for number in range(30)]
        assert (answers[0], answers[-1]) == (401, 429)
        assert ask(server, **bearer("cabs"))[0] == 200
        clock[0] += 61  # it is reviewed again
        assert ask(server, **bearer("cabs"))[0] == 200
        assert ask(server, **bearer("shops"))[0] == 429  # not known yet


def test_who_logs_in_again_and_again_waits_and_others_do_not(server):
    answers = [ask(server, "/login", "POST", {"token": "cabs"})[0] for _ in range(20)]
    assert (answers[0], answers[-1]) == (303, 429)
    log_in(server, "shops")


def test_a_refused_token_that_is_sent_again_is_reviewed_and_counted_once(server, reviews):
    assert {ask(server, **bearer("wrong"))[0] for _ in range(30)} == {401}
    assert reviews.asked == [("token", "wrong")]
    assert ask(server, **bearer("cabs"))[0] == 200


def test_who_asks_too_often_waits(server):
    answers = [ask(server, **bearer("cabs"))[0] for _ in range(60)]
    assert answers[0] == 200
    assert 429 in answers
    assert ask(server, **bearer("shops"))[0] == 200


@pytest.mark.parametrize(
    "headers",
    [{"Sec_Fetch_Site": "cross-site"}, {"Sec_Fetch_Site": "same-site"}, {"Origin": "http://evil.example"},
     {"Origin": "null"}],
)  # fmt: skip
def test_a_form_of_another_site_is_refused(server, headers):
    assert ask(server, "/login", "POST", {"token": "cabs"}, **headers)[0] == 403
    cookie = log_in(server, "cabs")
    assert ask(server, "/logout", "POST", {}, Cookie=cookie, **headers)[0] == 403
    assert ask(server, Cookie=cookie)[0] == 200


def test_a_form_of_this_page_is_taken(server):
    for headers in ({"Sec_Fetch_Site": "same-origin"}, {"Origin": f"http://127.0.0.1:{server.port}"}):
        assert ask(server, "/login", "POST", {"token": "cabs"}, **headers)[0] == 303


def test_large_forms_and_other_methods_are_refused(server):
    assert ask(server, "/login", "POST", {"token": "x" * MOST_BODY})[0] == 413
    assert ask(server, "/login", "DELETE")[0] == 501
    with closing(socket.create_connection(("127.0.0.1", server.port), timeout=30)) as connection:
        connection.sendall(b"POST /login HTTP/1.0\r\n\r\n")
        assert b"413" in connection.recv(100)


def test_who_sends_no_headers_is_cut_off_before_who_sends_no_form(server, monkeypatch):
    assert FleetServer.header_seconds < CONNECTION_SECONDS / 2
    monkeypatch.setattr(FleetServer, "header_seconds", 0.3)
    with (
        closing(socket.create_connection(("127.0.0.1", server.port), timeout=30)) as slow,
        closing(socket.create_connection(("127.0.0.1", server.port), timeout=30)) as form,
    ):
        form.sendall(b"POST /logout HTTP/1.0\r\nContent-Length: 1\r\n\r\n")
        slow.sendall(b"GET / HTTP/1.0\r\nHost:")
        assert slow.recv(100) == b""
        form.sendall(b"x")
        assert b"303" in form.recv(100)


@pytest.mark.parametrize("path", ["/metrics", "/queries", "/queries/cabs", "/queries/cabs/fares/more", "/x", "/../etc"])
def test_other_paths_are_not_found(server, path):
    status, _, text = ask(server, path, **bearer("admin"))
    assert status == 404
    assert "there is no such page" in text


def test_an_api_server_that_does_not_answer_shows_nothing(server, reviews, caplog):
    cookie = log_in(server, "admin")
    reviews.error = ApiException(status=503, reason="down")
    status, _, text = ask(server, "/login", "POST", {"token": "cabs"})
    assert status == 503
    assert "the API server does not say who you are" in text
    assert "cabs" not in text
    assert ask(server, Cookie=cookie)[0] == 200  # as reviewed within the last minute


def test_no_token_and_no_number_is_in_the_log(reviews, caplog):
    caplog.set_level(logging.DEBUG)

    def broken():
        raise ValueError("Bearer admin-secret")

    reviews.rights["admin-secret"] = None
    with served(pages([query()], reviews, health=broken)) as server:
        cookie = log_in(server, "admin-secret")
        assert ask(server, Cookie=cookie)[0] == 500
    assert "cannot be rendered: ValueError" in caplog.text
    assert "admin-secret" not in caplog.text
    assert cookie.partition("=")[2] not in caplog.text


def test_old_figures_are_said_to_be_old(reviews):
    old = PageFinding(Severity.WARNING, "Figures are old", "nothing was heard for 300 s", "check the API server")
    with served(pages([query()], reviews, health=lambda: [old])) as server:
        assert "Figures are old" in ask(server, **bearer("admin"))[2]
        assert "Figures are old" in ask(server, "/queries/cabs/fares", **bearer("admin"))[2]


def test_few_pages_are_rendered_at_the_same_time(reviews, monkeypatch):
    running, most = [], []

    def rendered(rows, notes, *_):
        running.append(rows)
        most.append(len(running))
        sleep(0.1)  # others come meanwhile
        running.pop()
        return b"page"

    monkeypatch.setattr(page_server, "fleet_page", rendered)
    with served(pages([query()], reviews)) as server, ThreadPoolExecutor(6) as readers:
        answers = list(readers.map(lambda _: ask(server, **bearer("admin"))[0], range(6)))
    assert answers == [200] * 6
    assert max(most) == RENDERINGS


def test_a_fleet_that_is_not_all_shown_is_never_said_to_be_well(reviews, monkeypatch):
    monkeypatch.setattr(access, "REVIEW_SECONDS", -1.0)
    with served(pages([query("cabs", "fares"), query("cabs", "trips")], reviews)) as server:
        text = ask(server, **bearer("cabs"))[2]
        assert "Not all is shown" in text
        assert 'class="verdict warning"' in text
        assert "well" not in text
        assert "All 2 queries are well" in ask(server, **bearer("admin"))[2]


def test_nothing_is_computed_until_a_reader_asks_and_only_what_has_changed_then(reviews, monkeypatch):
    computed = []
    monkeypatch.setattr(fleet, "row_of", lambda view, now: computed.append(view.name) or row_of(view, now))
    cache = cache_of([query(name="fares"), query(name="trips")])
    with served(pages_of([cache], Access(reviews))) as server:
        cache.query_seen(query(name="fares", version=2))
        assert computed == []
        ask(server, **bearer("admin"))
        assert sorted(computed) == ["fares", "trips"]
        cache.query_seen(query(name="trips", reported=FAILING, version=3))
        assert "Failing and starting again" in ask(server, **bearer("admin"))[2]
        assert computed[2:] == ["trips"]
        cache.query_gone(query(name="trips"))
        assert "trips" not in ask(server, **bearer("admin"))[2]


def test_the_queries_of_several_caches_are_one_fleet(reviews):
    both = [cache_of([query("cabs", "fares")]), cache_of([query("shops", "orders")])]
    with served(pages_of(both, Access(reviews))) as server:
        assert "All 2 queries are well" in ask(server, **bearer("admin"))[2]
        assert ask(server, "/queries/shops/orders", **bearer("admin"))[0] == 200
