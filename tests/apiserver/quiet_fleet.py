"""What a fleet of queries makes the operator write, and when it writes nothing more."""

from __future__ import annotations

import json
import re
import time

from .operators import ask

QUIET = 5
"""Seconds in which nothing may be written."""


def phases(kubectl):
    queries = json.loads(kubectl("get", "sq", "-l", "!millrace.io/canary", "-o", "json"))["items"]
    return [each.get("status", {}).get("phase") for each in queries]


def rounds(operator):
    """Steps that it has taken, when no query waits for one."""
    page = ask(operator, "/metrics")[1]
    taken = re.search(r'^millrace_operator_reconciles_total\{result="success"\} (\S+)', page, re.M)
    waiting = re.search(r"^millrace_operator_queue_depth (\S+)", page, re.M)
    return float(taken[1]) if float(waiting[1]) == 0 else 0


def is_quiet(plane, namespace):
    before = writes(plane, namespace)
    time.sleep(QUIET)
    return writes(plane, namespace) == before


def writes(plane, namespace):
    """How often the operator has changed anything but its canary."""
    return sum(
        event["objectRef"].get("namespace") == namespace and event["objectRef"].get("name") != "millrace-canary"
        for event in plane.changes()
    )
