"""The operator, which dies at a chosen API request.

MILLRACE_DIES is ``before N`` or ``after N``: the process dies before it sends the N-th changing request (from 1), or before
it reads the response. With 0 it never dies. Requests that touch the canary do not count.
"""

from __future__ import annotations

import itertools
import os
import threading
from typing import Any

from kubernetes.client import ApiClient

from millrace_jobs.cli import main  # noqa: F401 - the entry point, which uses the patched client
from millrace_operator.handlers.operator import LEASE, canary_of
from millrace_operator.leadership.shard import Shard

_WHEN, _, _NUMBER = os.environ["MILLRACE_DIES"].partition(" ")
_COUNT = itertools.count(1)
_LOCK = threading.Lock()
_CHANGES = ("POST", "PUT", "PATCH", "DELETE")
_call = ApiClient.call_api


def _die() -> None:
    print(f"died {_WHEN} request {_NUMBER}", flush=True)
    os._exit(9)


def _dying_call(self: ApiClient, method: str, url: str, *arguments: Any, **options: Any) -> Any:
    if method not in _CHANGES or canary_of(LEASE, Shard()) in url:
        return _call(self, method, url, *arguments, **options)
    with _LOCK:
        number = next(_COUNT)
        if _WHEN == "before" and number == int(_NUMBER):
            _die()
        answer = _call(self, method, url, *arguments, **options)
        if _WHEN == "after" and number == int(_NUMBER):
            _die()
        return answer


ApiClient.call_api = _dying_call  # type: ignore[method-assign]
