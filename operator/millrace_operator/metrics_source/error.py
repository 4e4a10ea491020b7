"""The one error of this room."""

from __future__ import annotations

from millrace_api.errors import MillraceError


class PrometheusError(MillraceError):
    """Prometheus cannot be reached, refuses a query, or gives an answer that cannot be used; with its own words."""
