"""The report of a whole test run, of the files of its parts."""

from __future__ import annotations

import pytest

import report

PASSING = "def test_{name}():\n    pass\n"
MIXED = """
import pytest
@pytest.fixture
def broken(): raise OSError("no room")
def test_fails(): assert 1 == 2
def test_errs(broken): pass
@pytest.mark.parametrize("number", range(3))
def test_waits(number): pytest.skip("takes many minutes")
"""


@pytest.fixture
def part(pytester):
    """Runs a test file; the path of its results."""

    def run(name: str, source: str):
        path = pytester.path / f"{name}.xml"
        file = pytester.makepyfile(**{f"test_{name}": source})
        pytester.runpytest_inprocess(file, f"--junitxml={path}")
        return path

    return run


def test_all_parts_are_summed_up(part, capsys):
    parts = [part(name, PASSING.format(name=name)) for name in ("one", "two")]
    capsys.readouterr()
    assert report.main(parts) == 0
    printed = capsys.readouterr().out
    assert "test_one::test_one" in printed
    assert "test_two::test_two" in printed
    assert "== skipped: 0" in printed
    assert printed.splitlines()[-1].startswith("==== 2 passed in ")


def test_failures_and_reasons_of_skips_are_named(part, capsys):
    parts = [part("mixed", MIXED), part("one", PASSING.format(name="one"))]
    capsys.readouterr()
    assert report.main(parts) == 1
    printed = capsys.readouterr().out
    assert "== skipped: 3\n     3 takes many minutes" in printed
    assert "failed  test_mixed::test_fails: assert 1 == 2" in printed
    assert 'error   test_mixed::test_errs: failed on setup with "OSError: no room"' in printed
    assert printed.splitlines()[-1].startswith("==== 1 failed, 1 errors, 1 passed, 3 skipped in ")


def test_a_run_without_results_is_a_failure(part, tmp_path, capsys):
    parts = [part("one", PASSING.format(name="one")), tmp_path / "gone.xml"]
    assert report.main(parts) == 1
    assert "gone: pytest wrote no results" in capsys.readouterr().out


def test_a_run_without_tests_is_a_failure_beside_one_with_some(part, capsys):
    assert report.main([part("one", PASSING.format(name="one")), part("none", "")]) == 1
    assert "none: pytest wrote no results" in capsys.readouterr().out


def test_slow_tests_in_their_turn_are_named(part, capsys):
    path = part("slow", "def test_long(record_property): record_property('slow turn', '1.5')\ndef test_other(): pass")
    capsys.readouterr()
    assert report.main([path]) == 0
    printed = capsys.readouterr().out.split("== slow tests in their turn: 1\n")[1]
    assert printed.startswith("passed  0.0 of 1.5 minutes  test_slow::test_long\n\n")
