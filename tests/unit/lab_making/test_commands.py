"""Programs that make parts are watched: a failure is said with its last words, and what hangs is ended."""

from __future__ import annotations

from typing import Any

import pytest

from lab.cache import MissingError
from lab.parts.commands import run


def shell(script: str, **options: Any) -> str:
    return run(["sh", "-c", script], **options)


def test_standard_output_is_returned_and_both_are_passed_on_line_by_line():
    lines: list[str] = []
    assert shell("echo one; echo two; echo three >&2", each_line=lines.append) == "one\ntwo\n"
    assert sorted(lines) == ["one", "three", "two"]


def test_folder_and_environment_are_its_own(tmp_path):
    assert shell('echo "$PWD $LAB"', folder=tmp_path, environment={"LAB": "here"}) == f"{tmp_path} here\n"


def test_a_failure_ends_with_the_last_errors():
    with pytest.raises(MissingError, match=r"^sh -c fails with status 3: last words$"):
        shell("echo printed; echo last words >&2; exit 3")


def test_a_program_that_is_not_there_is_missing():
    with pytest.raises(MissingError, match="not installed: no-such-program"):
        run(["no-such-program"])


@pytest.mark.parametrize(
    ("options", "verdict"),
    [({"silence": 1.0}, "printed nothing for 1 s: begun"), ({"seconds": 1.0}, "did not finish within 1 s: begun")],
    ids=["silence", "seconds"],
)
def test_what_hangs_is_ended_with_all_that_it_has_started(options, verdict):
    with pytest.raises(MissingError, match=verdict):
        shell("echo begun; sleep 1000 | sleep 1000", **options)


def test_what_speaks_now_and_then_does_not_hang():
    assert shell("for n in 1 2 3 4; do echo $n; sleep 0.6; done", silence=2.0) == "1\n2\n3\n4\n"
