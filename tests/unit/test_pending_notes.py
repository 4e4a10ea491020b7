"""Notes of calls that last: what the driver reads of those of many processes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from millrace_jobs import pending
from millrace_jobs.pending import CallKind, PendingCall, PendingCalls


def document(call: PendingCall) -> dict[str, object]:
    return vars(call) | {"kind": str(call.kind)}


def note(folder: Path, process: str, *calls: PendingCall, at: float = 0.0) -> None:
    (folder / process).write_text(json.dumps([at, [document(call) for call in calls]]), encoding="utf-8")
    os.utime(folder / process, (at, at))


def a_call(**changes) -> PendingCall:
    known = {"kind": CallKind.CODE, "what": "function a:b", "doing": "computing", "calls": 1}
    return PendingCall(**known | {"seconds": 30.0, "all_seconds": 30.0} | changes)


def test_a_call_of_several_processes_is_one_of_the_longest(tmp_path):
    note(tmp_path, "11", a_call(all_seconds=25.0, seconds=25.0))
    note(tmp_path, "12", a_call(place="a.py, line 3, in b"), a_call(what="function a:other", all_seconds=21.0))
    first, second = PendingCalls(tmp_path, clock=lambda: 2.0)()
    assert str(first) == (
        "the function a:b has not returned for 32 s in 2 processes while computing, at a.py, line 3, in b"
    )
    assert second.what == "function a:other"


def test_a_server_that_several_processes_wait_for_is_named_once(tmp_path):
    kafka = {"kind": CallKind.SERVER, "what": "Kafka at b:9092", "why": "Kafka at b:9092 cannot be reached"}
    for process in ("11", "12"):
        note(tmp_path, process, a_call(doing=f"reading partition {process}", **kafka))
    (found,) = PendingCalls(tmp_path, clock=lambda: 0.0)()
    assert str(found) == "Kafka at b:9092 cannot be reached, for 30 s so far"


BAD_FACTS = {
    "seconds": ["Infinity", "-Infinity", "NaN", "1e400", "1" + "0" * 400, "-1", '"1"', "[]", "null"],
    "calls": ["Infinity", "NaN", "1" + "0" * 400, "-1", "null"],
    "what": ["[" + ",".join(['"x"'] * 1000) + "]", "{}", "1", "null"],
}
"""Facts of a call that no process of ours notes, as JSON."""

UNREADABLE = [
    b"",
    b"\xff\xfe",
    b"[" * 10_000,
    b"{}",
    b"[0, 3]",
    b'[0, [{"kind": "code"}]]',
    b'[0, [{"kind": "other", "what": "a", "doing": "b", "calls": 1, "seconds": 1, "all_seconds": 1, "place": "",'
    b' "why": "", "hint": ""}]]',
    b'["now", []]',
    b" " * 100_000 + b"[0, []]",
    *(b"[%s, []]" % at for at in (b"Infinity", b"NaN", b"1" + b"0" * 400, b"[]")),
    *(
        json.dumps([0, [document(a_call()) | {fact: 0}]]).replace(f'"{fact}": 0', f'"{fact}": {bad}').encode()
        for fact, values in BAD_FACTS.items()
        for bad in values
    ),
]
"""Contents of files that no process of ours writes."""


@pytest.mark.parametrize("content", UNREADABLE, ids=range(len(UNREADABLE)))
def test_whatever_user_code_writes_there_disturbs_nothing(tmp_path, content):
    (tmp_path / "11").write_bytes(content)
    (tmp_path / "12").symlink_to("/etc/passwd")
    (tmp_path / "13").mkdir()
    os.mkfifo(tmp_path / "15")
    (tmp_path / "name").write_bytes(content)
    for each in tmp_path.iterdir():
        os.utime(each, (0, 0), follow_symlinks=False)
    note(tmp_path, "14", a_call(place="a\x1b[2Jb\n" + "x" * 1000))
    (found,) = PendingCalls(tmp_path, clock=lambda: 0.0)()
    assert found.place.startswith("a [2Jb xxx")
    assert len(found.place) == 300


def test_a_note_of_a_process_that_has_ended_is_not_read(tmp_path):
    note(tmp_path, "11", a_call(), at=100.0)
    assert PendingCalls(tmp_path, clock=lambda: 110.0)()
    assert not PendingCalls(tmp_path, clock=lambda: 116.0)()
    assert not list(tmp_path.iterdir())
    note(tmp_path, "11", a_call(), at=100.0)
    assert not PendingCalls(tmp_path, clock=lambda: 84.0)()
    assert not PendingCalls(tmp_path / "gone")()


def test_notes_of_many_processes_that_have_ended_hide_none_of_one_that_lives(tmp_path):
    for process in range(100, 400):
        note(tmp_path, f"{process}", a_call(what="function a:ended"), at=50.0)
    for process in range(500, 800):
        note(tmp_path, f"{process}", a_call(what="function a:older"), at=98.0)
    note(tmp_path, "999", a_call(), at=100.0)
    found = PendingCalls(tmp_path, clock=lambda: 100.0)()
    assert {(call.what, call.processes) for call in found} == {("function a:b", 1), ("function a:older", 255)}


def test_the_calls_that_are_read_are_bounded(tmp_path):
    for process in range(3):
        lasting = [a_call(what=f"function m{process}:f{each}", all_seconds=30.0 + each) for each in range(100)]
        note(tmp_path, f"{process}", *lasting)
    assert len(PendingCalls(tmp_path, clock=lambda: 0.0)()) == pending.MOST_CALLS
