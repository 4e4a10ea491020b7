"""Dead letters appear whole or not at all, and once however often a task is tried."""

import json

import pytest

from millrace_api.errors import MillraceError
from millrace_jobs.sources.base import CorruptRecords
from millrace_jobs.sources.dead_letters import BadRecordHandler
from millrace_jobs.sources.formats.decoding import BadRecord
from record_tables import no_file_above

BAD = BadRecord('a "bad" ünë\\xff', "no reason", 7)
TARGET = "trips-000000000017-003.jsonl"


def rejects(folder, policy="DeadLetter"):
    return BadRecordHandler("trips", CorruptRecords(policy, str(folder / "dead")), "000000000017-003")


def test_a_letter_says_what_where_and_why(tmp_path):
    with rejects(tmp_path) as taken:
        taken.reject("in/a.csv", BAD)
        taken.reject("in/a.csv", BAD)
    assert taken.records == 2
    lines = (tmp_path / "dead" / TARGET).read_text("utf-8").splitlines()
    assert json.loads(lines[0]) == {
        "source": "trips",
        "file": "in/a.csv",
        "line": 7,
        "reason": "no reason",
        "text": 'a "bad" ünë\\xff',
    }
    assert lines[0] == lines[1]


def test_trying_again_replaces_the_same_file(tmp_path):
    contents = []
    for _ in range(2):
        with rejects(tmp_path) as taken:
            taken.reject("in/a.csv", BAD)
        (file,) = (tmp_path / "dead").iterdir()
        contents.append((file.name, file.read_bytes()))
    assert contents[0] == contents[1]
    assert contents[0][0] == TARGET


def test_an_attempt_that_fails_leaves_nothing(tmp_path):
    def failing_attempt():
        with rejects(tmp_path) as taken:
            taken.reject("in/a.csv", BAD)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing_attempt()
    assert list((tmp_path / "dead").iterdir()) == []


def test_no_file_is_written_without_bad_records(tmp_path):
    with rejects(tmp_path):
        pass
    assert not (tmp_path / "dead").exists()


def test_policy_drop_only_counts_bad_records(tmp_path):
    with rejects(tmp_path, "Drop") as taken:
        taken.reject("in/a.csv", BAD)
    assert taken.records == 1
    assert not (tmp_path / "dead").exists()


def test_policy_fail_names_file_line_text_and_what_to_do(tmp_path):
    with pytest.raises(MillraceError) as error, rejects(tmp_path, "Fail") as taken:
        taken.reject("in/a.csv", BadRecord("x" * 1000, "too long", 7))
    text = str(error.value)
    assert text.startswith("in/a.csv:7: source trips cannot decode 'xxx")
    assert "...': too long; correct it or the schema, or set corruptRecords.policy to Drop or DeadLetter" in text
    assert len(text) < 400


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "dead").write_text("a file")
    with (
        pytest.raises(MillraceError, match=r"cannot write the dead letters of source trips: .*corruptRecords\.path"),
        rejects(tmp_path) as taken,
    ):
        taken.reject("in/a.csv", BAD)


@pytest.mark.parametrize("records", [1, 10_000])
def test_a_full_disk_is_named_and_leaves_nothing(tmp_path, records):
    def attempt():
        with rejects(tmp_path) as taken:
            for _ in range(records):
                taken.reject("in/a.csv", BAD)

    with (
        no_file_above(100),
        pytest.raises(MillraceError, match="cannot write the dead letters of source trips"),
    ):
        attempt()
    assert list((tmp_path / "dead").iterdir()) == []
