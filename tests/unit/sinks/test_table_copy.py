"""The copy of a table's keys on disk: after a crash at any point it is that of the topic, or is made again."""

import json
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace_api.errors import TransientError
from millrace_jobs.sinks.kafka import live_rows
from millrace_jobs.sinks.kafka.live_rows import LiveRows
from millrace_jobs.sinks.kafka.topic import LastWritten, TableOrigin

from .live_batches import messages_of

ORIGIN = TableOrigin("a topic", {"rows-0": 7})
NEVER = (1 << 62) + 1


class Topic:
    """A topic of rows as a dictionary, with the last batch; and the driver's copy in a folder."""

    def __init__(self, folder):
        self.folder = folder
        self.rows = {}
        self.last = LastWritten()
        self.rebuilt = 0
        self.live = None

    def start(self, origin=ORIGIN):
        """The next run, of which ``rebuilt`` counts whether it has read the topic."""
        if self.live is None:
            self.live = LiveRows(self.folder)
        if not self.live.resume(origin, self.last):
            self.rebuilt += 1
            self.live.rebuild(origin, self.last, list(self.rows.items()))
        assert len(self.live) == len(self.rows)

    def batch(self, rows, watermark, token, *, upto=None, commits=True):
        """A batch of ``(key, is it admitted, end)``, of which a crash leaves ``upto`` messages, or no commit."""
        number = 0 if self.last.batch is None else self.last.batch + 1
        results = [(key, "{}" if admitted else None, end) for key, admitted, end in rows]
        messages = messages_of(self.live, iter(results), LastWritten(number, token), watermark)
        if upto is not None:
            for _, _message in zip(range(upto), messages, strict=False):
                pass
            return
        sent = [(message.key, message.value) for message in messages]
        after = {**self.rows, **{key: end for key, admitted, end in rows if admitted}}
        gone = [key for key, admitted, _ in rows if not admitted and key in self.rows]
        ended = [key for key, end in after.items() if end <= watermark * 1000 and key not in gone]
        assert sorted(key for key, value in sent if value is None) == sorted(gone + ended)
        assert sorted(key for key, value in sent if value) == sorted(key for key, admitted, _ in rows if admitted)
        if commits:
            self.rows = {key: end for key, end in after.items() if key not in (*gone, *ended)}
            self.last = LastWritten(number, token)
            assert set(self.live.removed(len(rows) + len(after)).to_pylist()) == {*gone, *ended}

    def kill(self, elsewhere):
        """The driver dies: what comes next sees the files as they are now, in another folder."""
        shutil.copytree(self.folder, elsewhere)
        self.live.close()
        self.folder, self.live = elsewhere, None

    def close(self):
        if self.live is not None:
            self.live.close()


@pytest.fixture
def topic(tmp_path):
    with closing(Topic(tmp_path / "copy")) as opened:
        opened.start()
        yield opened


rows = st.lists(
    st.tuples(st.integers(0, 12), st.booleans()).map(lambda row: (f"key {row[0]}", row[1], row[0] % 5 * 1000 or NEVER)),
    unique_by=lambda row: row[0],
    max_size=8,
)
events = st.sampled_from(
    ["commit", "commit", "commit", "abort", "half", "die before", "die after", "die in it", "stop"]
)
steps = st.lists(st.tuples(rows, st.integers(0, 5), events), max_size=15)


@settings(max_examples=60)
@given(steps)
def test_the_copy_is_the_topic_after_crashes_at_any_point(tmp_path_factory, steps):
    base = tmp_path_factory.mktemp("copies")
    with closing(Topic(base / "first")) as topic:
        topic.start()
        watermark = 0
        for number, (results, later, event) in enumerate(steps):
            fate = {"upto": len(results) // 2} if event in ("half", "die in it") else {}
            if event in ("abort", "die before"):
                fate["commits"] = False
            tried = max(watermark, later)
            topic.batch(results, tried, number, **fate)
            if not fate:
                watermark = tried
            if event.startswith("die"):
                topic.kill(base / str(number))
            elif event == "stop":
                topic.live.close()
                topic.live = None
            if event != "commit":
                topic.start()
        assert topic.rebuilt == 1  # at the first start alone


def test_a_copy_is_not_taken_for_that_of_another_attempt_at_the_batch(topic, tmp_path):
    topic.batch([("a", True, NEVER)], 0, token=1, commits=False)
    topic.kill(tmp_path / "next")
    topic.last, topic.rows = LastWritten(0, 2), {"b": NEVER}  # which another driver has written
    topic.start()
    assert topic.rebuilt == 2


def test_the_keys_of_very_many_removed_rows_are_not_collected(topic):
    topic.batch([(f"key {number}", True, 1000) for number in range(20)], 0, token=0)
    topic.batch([], 1, token=1)
    assert topic.live.removed(19) is None
    assert len(topic.live.removed(20)) == 20


@pytest.mark.parametrize(
    "origin",
    [
        TableOrigin("the topic, created again", {"rows-0": 7}),
        TableOrigin("a topic", {"rows-0": 6}),
        TableOrigin("a topic", {}),
    ],
    ids=["recreated", "shorter", "fewer partitions"],
)
def test_a_copy_of_another_topic_is_made_again(topic, tmp_path, origin):
    topic.batch([("a", True, NEVER)], 0, token=1)
    topic.kill(tmp_path / "next")
    topic.rows = {}
    topic.start(origin)
    assert topic.rebuilt == 2


@pytest.mark.parametrize("batch", [None, 0, 2, 9])
def test_a_copy_that_is_two_batches_off_is_made_again(topic, tmp_path, batch):
    for number in range(4):
        topic.batch([(f"key {number}", True, NEVER)], 0, token=number)
    topic.kill(tmp_path / "next")
    topic.last, topic.rows = LastWritten(batch, batch), {"other": 1}
    if batch == 2:
        topic.rows = {f"key {number}": NEVER for number in range(3)}
    topic.start()
    assert topic.rebuilt == (1 if batch == 2 else 2)


def test_a_batch_is_taken_back_once(topic, tmp_path):
    topic.batch([("a", True, NEVER)], 0, token=0)
    topic.batch([("b", True, NEVER)], 0, token=1, commits=False)
    topic.start()
    topic.kill(tmp_path / "next")
    topic.start()
    assert topic.rebuilt == 1
    topic.last, topic.rows = LastWritten(), {}
    topic.start()  # of what is before the batch that is there, nothing is known
    assert topic.rebuilt == 2


def test_a_copy_that_was_open_when_the_machine_went_down_is_made_again(topic, tmp_path, monkeypatch):
    topic.batch([("a", True, NEVER)], 0, token=0)
    topic.kill(tmp_path / "next")
    monkeypatch.setattr(live_rows, "boot_id", lambda: "another boot")
    topic.start()
    assert topic.rebuilt == 2
    topic.live.close()
    topic.live = None
    monkeypatch.setattr(live_rows, "boot_id", lambda: "a third one")
    topic.start()  # it was closed, and so flushed
    assert topic.rebuilt == 2


@pytest.mark.parametrize("damage", ["cut", "empty", "text", "zeros", "another database", "a byte"])
def test_a_damaged_copy_is_made_again(topic, tmp_path, damage):
    topic.batch([(json.dumps({"key": number}), True, NEVER) for number in range(3000)], 0, token=0)
    topic.live.close()
    topic.live = None
    file = topic.folder / "keys.sqlite"
    content = bytearray(file.read_bytes())
    if damage == "another database":
        file.unlink()
        with closing(sqlite3.connect(file)) as other:
            other.execute("CREATE TABLE about (text)")
    else:
        place = content.index(b'{"key": 1234}')
        damaged = {
            "cut": content[: len(content) // 2],
            "empty": b"",
            "text": b"no database" * 10_000,
            "zeros": content[:8192] + bytes(4096) + content[12288:],
            "a byte": content[:place] + b"[" + content[place + 1 :],
        }
        file.write_bytes(damaged[damage])
    topic.start()
    assert topic.rebuilt == 2


@settings(max_examples=40)
@given(st.data())
def test_no_changed_byte_leads_to_other_rows(tmp_path_factory, data):
    base = tmp_path_factory.mktemp("bytes")
    with closing(Topic(base / "copy")) as topic:
        topic.start()
        topic.batch([(f"key {number}", True, 1000 + number) for number in range(200)], 0, token=0)
        topic.live.close()
        topic.live = None
        file = topic.folder / "keys.sqlite"
        content = bytearray(file.read_bytes())
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
        file.write_bytes(content)
        topic.start()
        topic.batch([], 1, token=1)  # asserts that all rows get their tombstones
        assert topic.rows == {key: end for key, end in topic.rows.items() if end > 1000}


def test_a_copy_that_an_older_driver_still_holds_is_made_again_beside_it(topic):
    topic.batch([("a", True, NEVER)], 0, token=0)
    with closing(LiveRows(topic.folder)) as newer:
        assert not newer.resume(ORIGIN, topic.last)
        newer.rebuild(ORIGIN, topic.last, topic.rows.items())
        assert len(newer) == 1
        topic.batch([("b", True, NEVER)], 0, token=1)  # which Kafka would refuse
        assert len(newer) == 1


def test_a_full_disk_is_reported_and_the_copy_made_again(topic):
    topic.batch([("a", True, NEVER)], 0, token=0)
    topic.live._database.execute("PRAGMA max_page_count = 1")
    with pytest.raises(
        TransientError, match=r"the copy of the table's keys in .* cannot be used: database or disk is full"
    ):
        topic.batch([(f"{'long' * 200} {number}", True, NEVER) for number in range(100)], 0, token=1)
    topic.start()
    assert topic.rebuilt == 2
    assert topic.rows == {"a": NEVER}


def temporary_files():
    """Folders of the temporary files that SQLite has open in this process."""
    found = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # that of the listing itself
            place = descriptor.readlink()
            if place.name.startswith("etilqs_"):
                found.add(place.parent)
    return found


def test_what_is_read_and_sorted_is_in_the_folder_of_the_copy_too(topic, monkeypatch):
    monkeypatch.setattr(live_rows, "CACHE_BYTES", 1 << 16)
    folders = []

    def changes():
        for number in range(20_000):
            yield f"{'long' * 20} {number * 7919 % 20_000}", NEVER
        folders.append(temporary_files())

    topic.live.rebuild(ORIGIN, topic.last, changes())
    assert folders == [{topic.folder}]
    topic.rows = {f"{'long' * 20} {number}": NEVER for number in range(20_000)}
    topic.batch([], 0, token=0)
    with closing(sqlite3.connect(":memory:")) as other:  # of somebody else in this process
        assert other.execute("PRAGMA temp_store_directory").fetchall() == []
