"""A plugin of pytest: what a test run makes of services that are missing, and of shared fixtures that fail."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest

from .cache import MissingError

_ATTEMPTS = 3
"""How often a shared fixture is set up before its failure is taken to last."""

_failed: Counter[pytest.FixtureDef[Any]] = Counter()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Report a test whose service is missing as skipped, or as failed where ``CI`` is set: there it must run."""
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
    """Set up a shared fixture that has failed again for the next test that needs it, instead of failing that one, too.

    What failed may have done so for a passing reason, such as a busy machine.
    """
    try:
        return (yield)
    except (MissingError, pytest.skip.Exception):
        raise
    except BaseException:
        _failed[fixturedef] += 1
        if fixturedef.scope != "function" and _failed[fixturedef] < _ATTEMPTS:
            fixturedef.finish(request)
        raise
