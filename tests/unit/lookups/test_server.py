"""The endpoint over HTTP: what it answers, what it refuses and why, and its limits."""

import json
import os
import signal
import socket
from urllib.parse import quote

import pytest

from lab.waiting import wait_until
from millrace_api.errors import MillraceError
from millrace_jobs.lookups import requests
from millrace_jobs.lookups.process import LookupProcess
from millrace_jobs.lookups.server import MAX_CONNECTIONS, MAX_HEAD

from .tables import CELL, ROUTE, WINDOWED, ask, filled, served, text

ROUTES = {(origin, number): len(origin) * number for origin in ("EWR", "JFK", "JFK,2") for number in (5, 10, 20)}


@pytest.fixture(scope="module")
def routes(tmp_path_factory):
    """The port of a table of routes."""
    folder = tmp_path_factory.mktemp("routes")
    rows = {
        text(origin=origin, number=number): text(origin=origin, number=number, flights=flights)
        for (origin, number), flights in ROUTES.items()
    }
    store = filled(folder, rows, batch=7)
    with served(folder, ROUTE) as process:
        yield process.port
    store.close()


def flights(answer):
    return [row and row["flights"] for row in answer["rows"]]


def test_keys_are_answered_in_their_order_and_missing_ones_by_null(routes):
    status, answer = ask(
        routes, '/table?key=JFK,5&key=["EWR",20]&key=LGA,1&key="JFK,2",10&key={"number":5,"origin":"EWR"}'
    )
    assert status == 200
    assert answer == {
        "query": "trips",
        "batch": 7,
        "key": ["origin", "number"],
        "next": None,
        "rows": [
            {"origin": "JFK", "number": 5, "flights": 15},
            {"origin": "EWR", "number": 20, "flights": 60},
            None,
            {"origin": "JFK,2", "number": 10, "flights": 50},
            {"origin": "EWR", "number": 5, "flights": 15},
        ],
    }


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        ("EWR", [30, 60, 15]),
        ("JFK", [30, 60, 15]),
        ("JFK*", [30, 60, 15, 50, 100, 25]),
        ("*", [30, 60, 15, 30, 60, 15, 50, 100, 25]),
        ("JFK,10", [30]),
        ('["JFK"]', [30, 60, 15]),
        ('{"origin":"JFK"}', [30, 60, 15]),
        ("J", []),
        ('["JFK*"]', []),
    ],
)
def test_a_prefix_is_of_whole_columns_unless_it_ends_with_a_star(routes, prefix, expected):
    status, answer = ask(routes, f"/table?prefix={quote(prefix)}")
    assert (status, flights(answer), answer["next"]) == (200, expected, None)


def test_rows_are_answered_in_pages_of_the_limit(routes):
    found, after = [], ""
    while after is not None:
        _, answer = ask(routes, f"/table?limit=4{after and '&after=' + after}")
        found.append(flights(answer))
        after = answer["next"]
    assert [len(page) for page in found] == [4, 4, 1]
    assert found == [[30, 60, 15, 30], [60, 15, 50, 100], [25]]


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/", 404, "there is no '/': the rows are at /table"),
        ("/table/", 404, "there is no '/table/': the rows are at /table"),
        ("/table?kye=a", 400, "there is no parameter 'kye': write after, at, key, limit, prefix, window"),
        ("/table?limit=0", 400, "limit '0' is not a number of rows: write 1 to 1000"),
        ("/table?limit=1001", 400, "limit '1001' is not a number of rows: write 1 to 1000"),
        ("/table?limit=%D9%A1", 400, "limit '١' is not a number of rows: write 1 to 1000"),
        ("/table?limit=1&limit=2", 400, "limit is given 2 times: write it once"),
        ("/table?key=JFK,1&limit=2", 400, "limit cannot be combined with key: leave one of them out"),
        ("/table?key=JFK,1&prefix=JFK", 400, "prefix cannot be combined with key: leave one of them out"),
        (
            "/table?key=JFK",
            400,
            "the key 'JFK' has 1 value: write one for each of origin, number, separated by commas or as a JSON array",
        ),
        ("/table?key=JFK,ten", 400, "number is a bigint, and 'ten' is not one"),
        ("/table?key=[1", 400, "the key '[1' is not JSON: write text that begins with [ or { as [\"[...\"]"),
        (
            '/table?key={"origin":"JFK"}',
            400,
            'the key \'{"origin":"JFK"}\' has 1 value: write one for each of origin, number, separated by commas or as a JSON array',
        ),
        (
            '/table?key={"orgin":"JFK"}',
            400,
            'the key has the columns origin, number: \'{"orgin":"JFK"}\' has to name them, or the first',
        ),
        ("/table?prefix=a,1,2", 400, "the prefix 'a,1,2' has 3 values, and the key only origin, number"),
        ("/table?prefix=a,1*", 400, "number is a bigint: only text and times can end with *"),
        ("/table?after=%21", 400, "'!' is not a cursor: write the value of next in the previous answer"),
        (
            "/table?window=2024-01-01&key=a",
            400,
            "the key has origin, number, none of which is a window: leave out window",
        ),
        ("/table?key=%FF,1", 400, "the URL is not valid UTF-8"),
    ],
)
def test_a_refusal_is_one_sentence(routes, path, status, said):
    assert ask(routes, path.replace('"', "%22").replace("{", "%7B")) == (status, {"error": said})


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "BREW"])
def test_only_get_is_allowed(routes, method):
    status, answer = ask(routes, "/table", method)
    assert status == 405
    assert answer == (None if method == "HEAD" else {"error": "only GET is allowed: look-ups change nothing"})


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "[", "127.0.0.1.evil.example"])
def test_a_name_that_leads_here_by_dns_rebinding_is_refused(routes, host):
    status, answer = ask(routes, "/table", Host=host)
    assert status == 421
    assert answer == {"error": f"the host {host!r} is not local: write 127.0.0.1 or localhost in the URL"}


@pytest.mark.parametrize("host", ["localhost", "localhost:8081", "127.0.0.1", "[::1]:1"])
def test_requests_to_local_names_are_answered(routes, host):
    assert ask(routes, "/table", Host=host)[0] == 200


def test_too_many_keys_are_refused(routes):
    many = "&".join("key=a,1" for _ in range(requests.MAX_KEYS))
    status, answer = ask(routes, f"/table?{many}")
    assert (status, answer["rows"]) == (200, [None] * requests.MAX_KEYS)
    for more in ("&key=a,1", "&key=a,1" * 100):
        refused = {"error": "a request has at most 1000 keys: ask for fewer at a time"}
        assert ask(routes, f"/table?{many}{more}") == (400, refused)


def converse(port, sent):
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode()


def test_requests_that_come_together_or_in_pieces_are_answered_in_order(routes):
    lines = [f"GET /table?key=JFK,{n} HTTP/1.1\r\nHost: localhost\r\n\r\n" for n in (5, 10, 20)]
    sent = "".join(lines).encode()
    with socket.create_connection(("127.0.0.1", routes), timeout=60) as connection:
        for start in range(0, len(sent), 7):
            connection.sendall(sent[start : start + 7])
        received = b""
        while received.count(b"]}\n") < 3:
            received += connection.recv(65536)
    assert [
        json.loads(part.split("\r\n\r\n")[1])["rows"][0]["number"] for part in received.decode().split("HTTP/1.1 ")[1:]
    ] == [5, 10, 20]


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"GET /table HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc", "a request has no body"),
        (b"GET /table HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", "a request has no body"),
        (b"GET http://a/table HTTP/1.1\r\nHost: localhost\r\n\r\n", "this is not a request of HTTP/1.1"),
        (b"GET /table\r\n\r\n", "this is not a request of HTTP/1.1"),
        (b"\r\n\r\n", "this is not a request of HTTP/1.1"),
        (b"GET /table?key=" + b"a" * MAX_HEAD, f"a request has at most {MAX_HEAD} bytes"),
    ],
)
def test_what_is_no_look_up_ends_the_connection(routes, sent, said):
    answer = converse(routes, sent + b"GET /table HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert said in answer
    assert "Connection: close" in answer
    assert answer.count("HTTP/1.1 ") == 1


def test_one_connection_too_many_is_turned_away(routes):
    held = [socket.create_connection(("127.0.0.1", routes), timeout=60) for _ in range(MAX_CONNECTIONS)]
    try:
        for connection in held:  # each is admitted once it has been answered
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 404 ")
        assert "503 Service Unavailable" in converse(routes, b"")
    finally:
        for connection in held:
            connection.close()
    wait_until(lambda: ask(routes, "/table")[0] == 200, "closed connections make room", 60)


def test_a_large_answer_is_cut_into_pages_and_refused_for_keys(tmp_path):
    large = text(cell="x", text="x" * (requests.MAX_ANSWER // 3))
    store = filled(tmp_path, {text(cell=str(n)): large for n in range(5)})
    with served(tmp_path, CELL) as process:
        pages, after = [], ""
        while after is not None:
            _, answer = ask(process.port, f"/table?after={after}")
            pages.append(len(answer["rows"]))
            after = answer["next"]
        assert pages == [2, 2, 1]
        refused = {"error": "the rows have more than 4 MiB: ask for fewer keys at a time"}
        assert ask(process.port, "/table?key=1&key=2&key=3") == (400, refused)
    store.close()


def test_windows_are_filled_in_from_their_start(tmp_path):
    window = {"start": "2024-03-01T12:00:00.000000Z", "end": "2024-03-01T12:10:00.000000Z"}
    store = filled(tmp_path, {text(window=window, cell="a"): text(window=window, cell="a", trips=3)})
    with served(tmp_path, WINDOWED) as process:
        for asked in (
            "window=2024-03-01T12:00:00Z&key=a",
            "window=2024-03-01T13:00%2B01:00&key=a",
            "key=2024-03-01%2012:00,a",
            'key=[{"start":"2024-03-01T12:00:00Z"},"a"]',
            f"key={quote(json.dumps({'window': window, 'cell': 'a'}))}",
            "prefix=2024-03-01T12:00",
        ):
            status, answer = ask(process.port, "/table?" + asked.replace('"', "%22"))
            assert (status, [row["trips"] for row in answer["rows"]]) == (200, [3]), asked
        for asked, said in (
            ("window=noon&key=a", "window is a time, and 'noon' is not one: write it like 2024-03-01T12:00:00Z"),
            ("window=2024-03-01", "window completes a key: write key as well"),
            (
                "window=2024-03-01&prefix=a",
                "window cannot be combined with prefix: write the window as a value of the prefix",
            ),
        ):
            assert ask(process.port, f"/table?{asked}") == (400, {"error": said})
    store.close()


def test_without_rows_there_is_a_reason(tmp_path):
    store = filled(tmp_path, {}, batch=3)
    with served(tmp_path, CELL) as process:
        assert ask(process.port, "/table") == (
            200,
            {"query": "trips", "batch": 3, "key": ["cell"], "next": None, "rows": []},
        )
        process.notify("the disk is full")
        wait_until(lambda: ask(process.port, "/table") == (503, {"error": "the disk is full"}), "a notice", 60)
        process.notify("")
        wait_until(lambda: ask(process.port, "/table")[0] == 200, "no notice", 60)
    store.close()


def test_a_port_that_is_taken_is_refused(routes, tmp_path):
    filled(tmp_path, {}).close()
    process = LookupProcess(tmp_path, "trips", CELL, routes)
    with pytest.raises(MillraceError) as refused:
        process.wait()
    process.close()
    assert str(refused.value) == (
        f"cannot serve look-ups on 127.0.0.1:{routes}: address already in use; "
        "choose another port from 1024 to 65535, or 0 for a free one"
    )


def test_a_process_that_dies_is_started_again_on_its_port(tmp_path, monkeypatch):
    monkeypatch.setattr("millrace_jobs.lookups.process._PAUSE_SECONDS", 0.01)
    store = filled(tmp_path, {text(cell="a"): text(cell="a", trips=1)})
    with served(tmp_path, CELL) as process:
        first = process._process.pid
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: process._process.pid != first and answers(process.port), "a new process answers", 60)
        process.notify("closed for today")
        wait_until(lambda: ask(process.port, "/table")[0] == 503, "a notice for the new process", 60)
    store.close()


def answers(port):
    try:
        return ask(port, "/table")[0] == 200
    except OSError:
        return False


def test_the_process_ends_with_its_driver(tmp_path):
    filled(tmp_path, {}).close()
    process = LookupProcess(tmp_path, "trips", CELL)
    process.wait()
    pid = process._process.pid
    os.kill(pid, signal.SIGTERM)  # which only the driver heeds
    assert answers(process.port)
    process.close()
    process.close()
    assert not answers(process.port)


def test_a_table_that_grows_while_it_is_served_is_still_read(tmp_path):
    store = filled(tmp_path, {text(cell="a"): text(cell="a", n=1)})
    with served(tmp_path, CELL) as process:
        assert ask(process.port, "/table?key=a")[0] == 200
        rows = [(text(cell=f"{n:05}"), text(cell=f"{n:05}", filler="x" * 2_000)) for n in range(10_000)]
        store.apply(1, rows, [])
        status, answer = ask(process.port, "/table?key=09999")
    assert (status, answer["batch"], answer["rows"][0]["cell"]) == (200, 1, "09999")
    store.close()
