"""Spark's Python processes, forked from one that has loaded everything: as if Python had been started for each."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

import millrace_jobs
from millrace_jobs.process.zygote import Zygote
from millrace_jobs.process.zygote_server import ZygoteServer as Server

PYTHON = Path(millrace_jobs.__file__).with_name("process") / "worker-python"

PROGRAM = """
import json, os, signal, sys, time
from pathlib import Path

what, *rest = sys.argv[1:]
loaded = "pyspark.worker" in sys.modules
if what == "tell":
    found = [rest, os.environ["WANTED"], os.getcwd(), sys.stdin.read(), __name__, loaded, os.getpid()]
    print(json.dumps(found))
    print("problem", file=sys.stderr)
if what == "end":
    sys.exit(int(rest[0]))
if what == "fail":
    raise ValueError("failed on purpose")
if what == "wait":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
    Path(rest[0]).write_text(str(os.getpid()))
    time.sleep(600)
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has what it needs")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """That of the program."""
    folder = tmp_path_factory.mktemp("zygote")
    (folder / "program.py").write_text(PROGRAM)
    return folder


@contextmanager
def serving():
    """A zygote; yields what processes that ask it have in their environment."""
    zygote = Zygote(quiet=False)
    zygote.start()
    place = Path(zygote.settings["MILLRACE_ZYGOTE"]).parent
    try:
        assert place.exists()
        yield zygote.settings
    finally:
        zygote.finish()
        assert not place.exists()


@pytest.fixture(scope="module")
def zygote():
    with serving() as settings:
        yield settings


def start(settings, folder, *arguments, **variables):
    environment = os.environ | settings | {"MILLRACE_PYTHON": sys.executable, "PYTHONPATH": str(folder)}
    return subprocess.Popen(
        [PYTHON, "-m", "program", *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment | variables,
        cwd=folder,
        text=True,
    )


def wait_until(holds):
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_running(pid):
    return Path(f"/proc/{pid}").exists()


def state(pid):
    """Of a process, as in ``ps``: Z for one that has ended and has not been waited for."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def waiting(settings, folder):
    """A process that waits, as Spark sees it, and the id of the one that does its work."""
    note = folder / "pid"
    note.unlink(missing_ok=True)
    process = start(settings, folder, "wait", note)
    wait_until(lambda: note.exists() and note.read_text())
    return process, int(note.read_text())


def test_a_process_is_as_if_python_had_been_started_for_it(zygote, folder):
    process = start(zygote, folder, "tell", "a b", "ü", WANTED="this\udcff")
    out, err = process.communicate("what it reads")
    *received, loaded, pid = json.loads(out)
    assert received == [["a b", "ü"], "this\udcff", str(folder), "what it reads", "__main__"]
    assert (loaded, err, process.returncode) == (True, "problem\n", 0)
    assert pid != process.pid


def test_many_processes_can_be_started_at_once(zygote, folder):
    processes = [start(zygote, folder, "tell", number, WANTED="") for number in range(8)]
    for number, process in enumerate(processes):
        out, _ = process.communicate("")
        assert json.loads(out)[0] == [str(number)]


@pytest.mark.parametrize("status", [0, 7])
def test_the_exit_status_of_a_process_is_that_of_its_child(zygote, folder, status):
    process = start(zygote, folder, "end", status)
    process.communicate()
    assert process.returncode == status


def test_a_failure_shows_its_traceback(zygote, folder):
    process = start(zygote, folder, "fail")
    _, err = process.communicate()
    assert "ValueError: failed on purpose" in err
    assert process.returncode == 1


def test_a_signal_is_passed_on(zygote, folder):
    process, pid = waiting(zygote, folder)
    process.terminate()
    process.communicate()
    assert process.returncode == 3
    wait_until(lambda: not is_running(pid))


def test_a_child_that_is_killed_ends_its_process(zygote, folder):
    process, pid = waiting(zygote, folder)
    os.kill(pid, signal.SIGKILL)
    process.communicate()
    assert process.returncode == 128 + signal.SIGKILL


def test_a_process_that_is_killed_takes_its_child_with_it(zygote, folder):
    process, pid = waiting(zygote, folder)
    process.kill()
    process.communicate()
    wait_until(lambda: not is_running(pid))


def test_a_child_and_its_process_that_are_killed_at_the_same_time_harm_no_other(folder):
    with serving() as zygote:
        process, child = waiting(zygote, folder)
        server = parent(child)
        os.kill(server, signal.SIGSTOP)  # so that it learns of both ends at once
        os.kill(child, signal.SIGKILL)
        wait_until(lambda: state(child) == "Z")
        process.kill()
        process.communicate()
        os.kill(server, signal.SIGCONT)
        other = start(zygote, folder, "tell", WANTED="")
        *_, loaded, _ = json.loads(other.communicate("")[0])
        assert loaded


def test_where_no_process_can_be_forked_the_client_is_sent_away(tmp_path, monkeypatch):
    def no_fork():
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", no_fork)
    monkeypatch.setattr(sys, "stdin", socket.socketpair()[0])  # what the server takes for its starter
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as connection:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        connection.connect(str(tmp_path / "s"))
        request = json.dumps([["-m", "program"], {}, "/"]).encode()
        with (tmp_path / "stream").open("wb") as stream:
            socket.send_fds(connection, [b"\0"], [stream.fileno()] * 3)
        connection.sendall(len(request).to_bytes(4, "big") + request)
        Server(listener)._answer()
        assert connection.recv(1) == b""


@pytest.mark.parametrize("sent", [b"", b"\0", b"\0\0\0\0\x05{", b"\0\0\0\0\x02{}"])
def test_a_request_that_makes_no_sense_is_passed_over(zygote, folder, sent):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(zygote["MILLRACE_ZYGOTE"])
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""
    process = start(zygote, folder, "end", 5)
    process.communicate()
    assert process.returncode == 5


def test_without_a_zygote_python_is_started(folder):
    with serving() as zygote:
        pass
    process = start(zygote, folder, "tell", WANTED="")
    out, _ = process.communicate("")
    *_, loaded, pid = json.loads(out)
    assert (loaded, pid) == (False, process.pid)


def test_in_a_folder_that_was_deleted_python_is_started(zygote, folder, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    process = subprocess.run(
        ["sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh", PYTHON, "-m", "program", "end", "5"],
        env=os.environ | zygote | {"MILLRACE_PYTHON": sys.executable, "PYTHONPATH": str(folder)},
        cwd=gone,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 5, process.stderr


def test_a_zygote_that_goes_before_it_answers_is_done_without(folder, tmp_path):
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        process = start({"MILLRACE_ZYGOTE": str(path)}, folder, "tell", WANTED="")
        connection, _ = listener.accept()
        connection.close()
        out, _ = process.communicate("")
    *_, loaded, pid = json.loads(out)
    assert (loaded, pid) == (False, process.pid)


def test_a_zygote_ends_with_its_starter_once_its_children_have_ended(folder):
    program = (
        "import json, time; from millrace_jobs.process.zygote import Zygote; zygote = Zygote(quiet=True); zygote.start(); "
        "print(json.dumps([zygote._process.pid, zygote.settings]), flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as starter:
        pid, settings = json.loads(starter.stdout.readline())
        process, child = waiting(settings, folder)
        starter.kill()
    time.sleep(0.2)
    assert is_running(pid)
    assert is_running(child)
    process.terminate()
    assert process.wait(60) == 3
    wait_until(lambda: not is_running(pid))
    assert not Path(settings["MILLRACE_ZYGOTE"]).parent.exists()
    process.communicate()


def test_children_of_a_zygote_for_grouping_begin_with_what_that_takes(folder):
    (folder / "loaded.py").write_text("import sys; print({'pyarrow.acero', 'numba.core.types'} <= sys.modules.keys())")
    zygote = Zygote(quiet=False, grouping=True)
    zygote.start()
    try:
        environment = os.environ | zygote.settings | {"MILLRACE_PYTHON": sys.executable, "PYTHONPATH": str(folder)}
        found = subprocess.run([PYTHON, "-m", "loaded"], env=environment, cwd=folder, capture_output=True, text=True)
    finally:
        zygote.finish()
    assert found.stdout.strip() == "True", found.stderr


@pytest.mark.parametrize("is_started", [True, False])
def test_a_zygote_that_is_ended_at_once_leaves_no_folder(is_started):
    zygote = Zygote(quiet=True)
    if is_started:
        zygote.start()
    zygote.end()
    assert not Path(zygote.settings["MILLRACE_ZYGOTE"]).parent.exists()


def test_a_path_too_long_for_a_socket_means_no_zygote(tmp_path, monkeypatch):
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    assert Zygote(quiet=True).settings == {}
    assert not list(long.iterdir())
