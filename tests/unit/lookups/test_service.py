"""The service for other pods, over HTTP: who is let in, that tokens and certificates rotate, and what is bounded."""

import asyncio
import json
import socket
import ssl
from contextlib import ExitStack, contextmanager

import pytest

from lab.ports import free_port
from lab.waiting import wait_until
from millrace_api.errors import MillraceError, TransientError
from millrace_jobs.lookups import server, service
from millrace_jobs.lookups.process import LookupProcess
from millrace_jobs.lookups.server import LookupServer
from millrace_jobs.lookups.service import LookupService, RequestAllowance, ServiceSettings, TokenFile
from millrace_support.lookups import TOKEN_VARIABLE, Lookup, look_up_at
from prometheus.certificates import Authority

from .tables import CELL, ask, filled, text

ONE, TWO = "the-first-reader-1234", "the-second-reader-567"
REFUSED = (401, {"error": "a valid bearer token is needed"})


@contextmanager
def serving(folder, tokens=(ONE,), **tls):
    """Serve a table with one row; yield the process, the port of the service and the file of tokens."""
    place, port = folder / "rows", free_port()
    place.mkdir()
    store = filled(place, {text(cell="a"): text(cell="a", trips=3)}, batch=7)
    file = folder / "tokens"
    rotate(file, *tokens)
    process = LookupProcess(place, "trips", CELL, 0, ServiceSettings("127.0.0.1", port, str(file), **tls))
    try:
        process.wait()
        yield process, port, file
    finally:
        process.close()
        store.close()


def rotate(file, *tokens):
    """Replace the file as Kubernetes does: by another one in its place."""
    new = file.with_name("new")
    new.write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    new.replace(file)


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture(scope="module")
def open_table(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("service"), (ONE, "short", TWO)) as (process, port, _):
        yield process.port, port


@pytest.mark.parametrize("token", [ONE, TWO])
def test_a_token_opens_the_table_under_every_host_name(open_table, token):
    status, answer = ask(open_table[1], "/table?key=a", Host="trips-driver.cabs", **bearer(token))
    assert (status, answer["batch"], answer["rows"]) == (200, 7, [{"cell": "a", "trips": 3}])


@pytest.mark.parametrize(
    "login",
    [
        {},
        {"Authorization": ""},
        {"Authorization": ONE},
        {"Authorization": f"Basic {ONE}"},
        bearer(ONE[:-1]),
        bearer(ONE + "x"),
        bearer(f"{ONE} {TWO}"),
        bearer("short"),
        bearer("\xff" * 40),
    ],
)
@pytest.mark.parametrize("target", ["/table?key=a", "/", "/table?bad=1"])
def test_without_a_valid_token_nothing_is_said(open_table, login, target):
    assert ask(open_table[1], target, **login) == REFUSED
    assert ask(open_table[1], target, "POST", **login) == REFUSED


def test_a_refused_connection_is_closed_whatever_follows(open_table):
    good = f"GET /table HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {ONE}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", open_table[1]), 60) as connection:
        connection.sendall(b"GET /table HTTP/1.1\r\nHost: a\r\n\r\n" + good.encode())
        said = b"".join(iter(lambda: connection.recv(65536), b""))
    assert said.count(b"HTTP/1.1") == said.count(b"401 Unauthorized") == 1
    assert b"WWW-Authenticate: Bearer" in said


def test_this_machine_needs_no_token(open_table):
    assert ask(open_table[0], "/table?key=a")[0] == 200


def test_tokens_rotate_without_a_restart_and_are_never_written_down(tmp_path, capfd):
    with serving(tmp_path) as (_, port, file):
        rotate(file, ONE, TWO)
        wait_until(lambda: ask(port, "/table", **bearer(TWO))[0] == 200, seconds=60)
        assert ask(port, "/table", **bearer(ONE))[0] == 200
        rotate(file, TWO, "tiny")
        wait_until(lambda: ask(port, "/table", **bearer(ONE)) == REFUSED, seconds=60)
        assert ask(port, "/table", **bearer(TWO))[0] == 200
        file.unlink()
        wait_until(lambda: ask(port, "/table", **bearer(TWO)) == REFUSED, seconds=60)
        rotate(file, ONE)
        wait_until(lambda: ask(port, "/table", **bearer(ONE))[0] == 200, seconds=60)
    said = "".join(capfd.readouterr())
    assert "1 tokens for look-ups have fewer than 16 characters, 1 are valid" in said
    assert "the tokens for look-ups cannot be read: requests to the service are refused" in said
    assert not [token for token in (ONE, TWO, "tiny") if token in said]


def test_a_file_without_tokens_admits_no_one(tmp_path, capfd):
    (tmp_path / "none").write_text("\n \n")
    tokens = TokenFile(str(tmp_path / "none"))
    assert not any(map(tokens.admits, ("", "Bearer", "Bearer ", "Bearer  ")))
    assert "0 are valid" in capfd.readouterr().err


def test_a_rotated_certificate_is_served_without_a_restart(tmp_path, monkeypatch):
    monkeypatch.setenv(TOKEN_VARIABLE, ONE)
    first, second = (Authority(tmp_path, name) for name in ("first", "second"))
    pairs = [authority.sign("trips", "IP:127.0.0.1") for authority in (first, second)]
    files = {"certificate": tmp_path / "tls.crt", "key": tmp_path / "tls.key"}

    def use(pair):
        for new, place in zip(pair, files.values(), strict=True):
            place.with_suffix(".new").write_bytes(new.read_bytes())
            place.with_suffix(".new").replace(place)

    def trusted(authority, port):
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
        try:
            return look_up_at(f"https://127.0.0.1:{port}/table", Lookup(["a"])).batch == 7
        except TransientError as error:
            return "certificate verify failed" not in str(error)

    use(pairs[0])
    with serving(tmp_path, **{name: str(file) for name, file in files.items()}) as (_, port, _):
        assert trusted(first, port)
        assert not trusted(second, port)
        files["key"].write_text("no key")  # what does not fit leaves the old pair
        use(pairs[1])
        wait_until(lambda: trusted(second, port), seconds=60)


def shaken(tls, authority):
    """Whether a handshake succeeds with a client that trusts an authority."""
    ends = ssl.MemoryBIO(), ssl.MemoryBIO()
    trusting = ssl.create_default_context(cafile=authority.certificate)
    client = trusting.wrap_bio(*ends, server_hostname="127.0.0.1")
    peers = [client, tls.wrap_bio(*reversed(ends), server_side=True)]
    for _ in range(4):
        for peer in peers:
            try:
                peer.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                return False
    return client.version() is not None


def test_a_certificate_and_a_key_that_change_one_after_the_other_are_taken_together(tmp_path, capfd):
    first, second = (Authority(tmp_path, name) for name in ("first", "second"))
    old, new = (authority.sign("trips", "IP:127.0.0.1") for authority in (first, second))
    files = [tmp_path / "tls.crt", tmp_path / "tls.key"]
    rotate(tmp_path / "tokens", ONE)

    def write(file, content):
        file.with_suffix(".new").write_bytes(content)
        file.with_suffix(".new").replace(file)

    for source, file in zip(old, files, strict=True):
        write(file, source.read_bytes())
    asked = LookupService(ServiceSettings("127.0.0.1", 0, str(tmp_path / "tokens"), *map(str, files)), lambda: 0.0)
    assert (shaken(asked.tls, first), shaken(asked.tls, second)) == (True, False)
    for key in (b"no key", old[1].read_bytes()):
        write(files[0], new[0].read_bytes())
        write(files[1], key)
        for _ in range(3):
            asked.refresh()
            assert (shaken(asked.tls, first), shaken(asked.tls, second)) == (True, False)
    assert capfd.readouterr().err.count("cannot be used: the one before stays") == 2
    write(files[1], new[1].read_bytes())
    asked.refresh()
    assert (shaken(asked.tls, first), shaken(asked.tls, second)) == (False, True)


def test_a_certificate_without_its_key_ends_the_start(tmp_path):
    pair = Authority(tmp_path, "one").sign("trips", "IP:127.0.0.1")
    other = Authority(tmp_path, "two").sign("trips", "IP:127.0.0.1")
    with (
        pytest.raises(
            MillraceError, match=r"127\.0\.0\.1:\d+: certificate and key are none, or do not belong together"
        ),
        serving(tmp_path, certificate=str(pair[0]), key=str(other[1])),
    ):
        pass


def test_get_sends_the_token_of_the_environment_and_shows_it_nowhere(open_table, monkeypatch):
    url = f"http://127.0.0.1:{open_table[1]}/table"
    monkeypatch.setenv(TOKEN_VARIABLE, f"{ONE}\n")
    assert look_up_at(url, Lookup(["a"])).rows == [{"cell": "a", "trips": "3"}]
    monkeypatch.setenv(TOKEN_VARIABLE, "something-else-entirely")
    with pytest.raises(MillraceError, match="rejects the token") as refused:
        look_up_at(url, Lookup(["a"]))
    assert "something-else" not in str(refused.value)


def test_more_requests_than_the_allowance_get_429_until_time_passes():
    now = [0.0]
    allowance = RequestAllowance(3, lambda: now[0])
    assert [allowance.take() for _ in range(4)] == [True, True, True, False]
    now[0] = 0.4
    assert [allowance.take() for _ in range(2)] == [True, False]
    now[0] = 100.0
    assert [allowance.take() for _ in range(4)] == [True, True, True, False]


def test_requests_beyond_the_allowance_are_told_to_come_later_and_the_connection_stays(open_table):
    request = f"GET /table?key=a HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {ONE}\r\n\r\n".encode()
    statuses = set()
    with socket.create_connection(("127.0.0.1", open_table[1]), 60) as connection:
        reader = connection.makefile("rb")
        for _ in range(3 * int(service.REQUESTS_PER_SECOND) // 100):
            connection.sendall(request * 100)
            for _ in range(100):
                statuses.add(int(reader.readline().split()[1]))
                headers = dict(line.split(b": ") for line in iter(reader.readline, b"\r\n"))
                assert json.loads(reader.read(int(headers[b"Content-Length"])))
    assert statuses <= {200, 429}
    assert 200 in statuses


@contextmanager
def connected(port, count):
    with ExitStack() as held:
        yield [held.enter_context(socket.create_connection(("127.0.0.1", port), 60)) for _ in range(count)]


def test_strangers_take_no_place_from_readers_or_from_this_machine_and_are_closed_soon(open_table):
    port, public = open_table
    with connected(public, service.MAX_STRANGERS) as held:
        assert ask(public, "/table", **bearer(ONE))[0] == 200
        assert ask(port, "/table?key=a")[0] == 200
        assert [each.recv(1) for each in held] == [b""] * len(held)  # by STRANGER_SECONDS


def test_readers_have_a_number_of_places_which_strangers_do_not_take(open_table):
    port, public = open_table
    request = f"GET /table?key=a HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {ONE}\r\n\r\n".encode()

    def answered(connection):
        connection.sendall(request)
        return connection.recv(65536).startswith((b"HTTP/1.1 200", b"HTTP/1.1 429"))

    with connected(public, service.MAX_READERS) as readers:
        assert all(map(answered, readers))
        assert ask(public, "/table", **bearer(ONE))[0] == 503
        assert ask(public, "/table") == REFUSED
        assert ask(port, "/table?key=a")[0] == 200
        with connected(public, 2 * service.MAX_STRANGERS) as strangers:
            assert strangers[0].recv(1) == b""
            assert all(map(answered, readers))
        readers[0].close()
        wait_until(lambda: ask(public, "/table", **bearer(ONE))[0] == 200, seconds=60)


def test_clients_that_never_shake_hands_are_counted_and_leave_a_place_for_a_reader(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "STRANGER_SECONDS", 3600.0)  # so that it is not this that closes them
    certificate, key = Authority(tmp_path, "one").sign("trips", "IP:127.0.0.1")
    rotate(tmp_path / "tokens", ONE)
    store, port = filled(tmp_path, {text(cell="a"): text(cell="a", trips=3)}, batch=7), free_port()
    settings = ServiceSettings("127.0.0.1", port, str(tmp_path / "tokens"), str(certificate), str(key))
    client = ssl.create_default_context(cafile=tmp_path / "one.crt")

    async def first_line():
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
        writer.write(f"GET /table HTTP/1.1\r\nAuthorization: Bearer {ONE}\r\nConnection: close\r\n\r\n".encode())
        status = await reader.readline()
        await reader.read()
        writer.close()
        return status

    async def attacked():
        asked = LookupService(settings, asyncio.get_running_loop().time)
        ready = asyncio.Event()
        task = asyncio.create_task(
            LookupServer(store.reader(), "trips", [*CELL], asked).serve(0, lambda _: ready.set())
        )
        await ready.wait()
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3 * service.MAX_STRANGERS)]
        assert await first_line() == b"HTTP/1.1 200 OK\r\n"
        closed = silent[: 2 * service.MAX_STRANGERS]
        assert [await each.read() for each, _ in closed] == [b""] * len(closed)
        assert len(asked.strangers) <= service.MAX_STRANGERS
        for _, writer in silent:
            writer.close()
        while asked.strangers or asked.readers:
            await asyncio.sleep(0.01)
        task.cancel()

    try:
        asyncio.run(asyncio.wait_for(attacked(), 60))
    finally:
        store.close()
