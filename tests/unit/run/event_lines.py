"""Lines of an event log."""

from __future__ import annotations

import json

from millrace_jobs.event_log import kept_lines

ALWAYS = [{"Event": f"SparkListener{name}"} for name in ("LogStart", "ApplicationStart", "EnvironmentUpdate")]
TASK = {"Event": "SparkListenerTaskEnd", "Stage ID": 1}


def lines(events):
    return [json.dumps(each, separators=(",", ":")).encode() + b"\n" for each in events]


def kept(*events):
    return [json.loads(each) for each in kept_lines(lines(events))]
