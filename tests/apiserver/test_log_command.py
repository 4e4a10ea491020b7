"""``millrace logs`` as far as a real kubelet would give them: streams, prefixes, and which part is asked for."""

from __future__ import annotations

import os
import signal
import subprocess
from threading import Event
from urllib.parse import parse_qs, urlsplit

import pytest

from spark.cli import MILLRACE, PATIENCE

from .log_server import running_log_server

pytestmark = pytest.mark.timeout(600)


def millrace(server, folder, *arguments):
    kubeconfig = server.write_kubeconfig(folder / "kubeconfig")
    return subprocess.Popen(
        [MILLRACE, *arguments],
        env=os.environ | {"KUBECONFIG": str(kubeconfig)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_the_driver_s_log_comes_as_it_is(tmp_path):
    with running_log_server({"trips-driver-0": [b"one\ntw", b"o\n\nlast \xff without an end"]}) as server:
        out, err = millrace(server, tmp_path, "logs", "trips").communicate(timeout=PATIENCE)
    assert (out, err) == (b"one\ntwo\n\nlast \xff without an end\n", b"")


def test_a_line_is_shown_while_the_log_goes_on(tmp_path):
    seen = Event()
    with running_log_server({"trips-driver-0": [b"first\n", seen.wait, b"second\n"]}) as server:
        process = millrace(server, tmp_path, "logs", "trips", "-f")
        assert process.stdout.readline() == b"first\n"  # the server sends no more before this was read
        seen.set()
        assert process.communicate(timeout=PATIENCE) == (b"second\n", b"")


def test_every_executor_has_its_prefix_and_they_are_followed_together(tmp_path):
    first, second = Event(), Event()
    logs = {
        "trips-exec-1": [b"one\n", first.set, second.wait, b"three\n"],
        "trips-exec-2": [first.wait, b"two\n", second.set],
    }
    with running_log_server(logs) as server:
        out, err = millrace(server, tmp_path, "logs", "trips", "--executors", "-f").communicate(timeout=PATIENCE)
    assert sorted(out.splitlines()) == [b"[trips-exec-1] one", b"[trips-exec-1] three", b"[trips-exec-2] two"]
    assert err == b""


def test_options_choose_which_part_of_the_log_is_asked_for(tmp_path):
    with running_log_server({"trips-driver-0": [b"x\n"]}) as server:
        options = ("--tail", "7", "--since", "5m", "--previous", "-f")
        millrace(server, tmp_path, "logs", "trips", *options).communicate(timeout=PATIENCE)
        asked = parse_qs(urlsplit(server.asked[0]).query)
    assert {name: value[0].lower() for name, value in asked.items()} == {
        "container": "driver",
        "follow": "true",
        "previous": "true",
        "sinceSeconds": "300",
        "tailLines": "7",
    }


def test_a_stream_that_breaks_off_is_told(tmp_path):
    def broken():
        raise ConnectionAbortedError

    with running_log_server({"trips-driver-0": [b"first\n", broken]}) as server:
        server.handle_error = lambda *_: None
        process = millrace(server, tmp_path, "logs", "trips", "-f")
        out, err = process.communicate(timeout=PATIENCE)
    assert out == b"first\n"
    assert process.returncode == 1
    assert err.startswith(b"error: the API server http://127.0.0.1:")
    assert b"ended the connection early" in err
    assert err.count(b"\n") == 1


@pytest.mark.parametrize("options", [[], ["--executors"]], ids=["driver", "executors"])
def test_ctrl_c_ends_what_would_go_on_for_ever(tmp_path, options):
    over = Event()
    parts = [b"first\n", over.wait]
    with running_log_server({"trips-driver-0": parts, "trips-exec-1": parts}) as server:
        process = millrace(server, tmp_path, "logs", "trips", "-f", *options)
        assert process.stdout.readline().endswith(b"first\n")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
        over.set()
    assert (process.returncode, err) == (-signal.SIGINT, b"")  # which a shell shows as 130
