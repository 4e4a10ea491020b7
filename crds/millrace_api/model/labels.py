"""Labels by which the pods of a query are found."""

from __future__ import annotations

QUERY = "millrace.io/query"
"""Name of the query that an object belongs to."""

ROLE = "millrace.io/role"
"""What a pod of a query does: ``DRIVER`` or ``EXECUTOR``."""

DRIVER, EXECUTOR = "driver", "executor"

CANARY = "millrace.io/canary"
"""Set on a StreamQuery that no operator deploys."""
