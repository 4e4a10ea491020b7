"""Error of the metrics source."""

from __future__ import annotations

from millrace_api.errors import MillraceError


class PrometheusError(MillraceError):
    """Prometheus is unreachable, refuses a query, or gives an unusable answer; the message quotes it."""
