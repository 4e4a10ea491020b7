"""A pytest plugin: skip or fail tests whose service is missing, and retry shared fixtures that fail."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest

from .cache import MissingError

_ATTEMPTS = 3
"""Attempts before the failure of a shared fixture is final."""

_failed: Counter[pytest.FixtureDef[Any]] = Counter()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Report a test whose service is missing as skipped, or as failed if ``CI`` is set, where every test must run."""
    if call.excinfo is None or not isinstance(call.excinfo.value, MissingError):
        return
    reason = str(call.excinfo.value)

    def end() -> None:
        if os.environ.get("CI"):
            pytest.fail(f"missing, and CI is set: {reason}", pytrace=False)
        pytest.skip(reason)

    call.excinfo = pytest.CallInfo.from_call(end, call.when).excinfo


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """Set up a shared fixture again for the next test that needs it if it failed, instead of failing that test, too.

    The failure may be transient, for example on a busy machine. A fixture that used up the time limit of its test, or
    has skipped it, is not tried again.
    """
    try:
        return (yield)
    except MissingError:
        raise
    except Exception:  # neither of pytest's own, for a time limit or a skip
        _failed[fixturedef] += 1
        if fixturedef.scope != "function" and _failed[fixturedef] < _ATTEMPTS:
            fixturedef.finish(request)  # type: ignore[arg-type]
        raise
