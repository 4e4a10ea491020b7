"""Tests that CI runs in turn."""

import pytest

from lab.turns import TURNS

TESTS = """
    import pytest

    @pytest.mark.in_turn
    @pytest.mark.parametrize("number", range(8))
    def test_long(number): pass

    @pytest.mark.slow
    @pytest.mark.in_turn
    def test_slow(): pass

    @pytest.mark.in_turn
    def test_ninth(): pass

    def test_short(): pass
"""
EVERY = [*(f"test_long[{number}]" for number in range(8)), "test_ninth", "test_short", "test_slow"]


@pytest.fixture
def passed(pytester, monkeypatch):
    """Runs the tests in these circumstances, and returns those that passed."""
    pytester.makepyfile(TESTS)
    pytester.makeini("[pytest]\nmarkers =\n  in_turn: in turn\n  slow: slow\n")

    def run(**environment: str) -> list[str]:
        monkeypatch.delenv("CI", raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        reports = pytester.inline_run("-p", "lab.turns").listoutcomes()[0]
        return sorted(report.nodeid.partition("::")[2] for report in reports)

    return run


def test_all_tests_in_turn_run_without_ci(passed):
    assert passed() == EVERY


def test_as_many_runs_as_there_are_turns_take_each_of_them_once(passed):
    turns = [passed(CI="true", MILLRACE_TURN=str(turn)) for turn in range(TURNS)]
    assert [len(turn) for turn in turns] == [4, *[3] * 7]
    assert sorted(set().union(*turns)) == EVERY
    assert {*turns[0]} & {*turns[1]} == {"test_short", "test_slow"}


def test_turns_go_on_with_the_number_of_commits(passed):
    assert passed(CI="true", MILLRACE_TURN="9") == passed(CI="true", MILLRACE_TURN=str(9 - TURNS))


def test_the_commit_decides(passed, monkeypatch):
    monkeypatch.delenv("MILLRACE_TURN", raising=False)
    assert passed(CI="true") == passed(CI="true")
    assert len(passed(CI="true")) in (3, 4)
