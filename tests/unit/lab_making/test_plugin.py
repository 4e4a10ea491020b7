"""What a test run makes of missing services, and of shared fixtures that fail."""

from __future__ import annotations

import pytest

NEEDS_A_SERVICE = """
    import pytest
    from lab.cache import MissingError

    @pytest.fixture(scope="session")
    def service():
        raise MissingError("the service: run `make lab` first")

    def test_one(service): pass
    def test_two(service): pass
    def test_by_itself():
        raise MissingError("the tool: not installed")
    def test_other(): pass
"""


@pytest.fixture
def run(pytester, monkeypatch):
    """Runs a test file with the plugin, as on a user's machine or where ``CI`` is set."""

    def run_file(source: str, ci: bool = False) -> pytest.RunResult:
        monkeypatch.setenv("CI", "true") if ci else monkeypatch.delenv("CI", raising=False)
        pytester.makepyfile(source)
        return pytester.runpytest_inprocess("-p", "lab.plugin", "-ra")

    return run_file


def test_without_a_service_tests_are_skipped_for_it(run):
    result = run(NEEDS_A_SERVICE)
    result.assert_outcomes(passed=1, skipped=3)
    result.stdout.fnmatch_lines(["SKIPPED [[]2[]] *: the service: run `make lab` first", "*: the tool: not installed"])


def test_tests_without_their_service_fail_where_ci_is_set(run):
    result = run(NEEDS_A_SERVICE, ci=True)
    result.assert_outcomes(passed=1, failed=1, errors=2)
    result.stdout.fnmatch_lines(["*missing, and CI is set: the service: run `make lab` first"])


FAILS = """
    import pytest
    starts = []

    @pytest.fixture(scope="session")
    def service():
        starts.append(1)
        if len(starts) <= {failures}:
            raise OSError(f"start {{len(starts)}} fails")
        yield len(starts)

    @pytest.fixture(scope="session")
    def installed(service):
        return service

    @pytest.mark.parametrize("number", range(6))
    def test_it(installed, number):
        assert installed == {failures} + 1

    def test_starts():
        assert len(starts) == {starts}
"""


def test_a_shared_fixture_that_failed_is_set_up_again(run):
    run(FAILS.format(failures=1, starts=2)).assert_outcomes(passed=6, errors=1)


def test_a_shared_fixture_that_fails_three_times_is_given_up(run):
    result = run(FAILS.format(failures=9, starts=3))
    result.assert_outcomes(passed=1, errors=6)
    assert "start 3 fails" in result.stdout.str()
    assert "start 4 fails" not in result.stdout.str()


def test_a_missing_shared_fixture_is_asked_for_once(run):
    source = FAILS.format(failures=9, starts=1).replace("OSError", "MissingError")
    run("    from lab.cache import MissingError" + source).assert_outcomes(passed=1, skipped=6)


def test_a_service_that_cannot_start_is_no_skip(run):
    for ci in (False, True):
        run(FAILS.format(failures=9, starts=3), ci=ci).assert_outcomes(passed=1, errors=6)
