"""Commands of the operator package: the operator, and what users type about queries on a cluster.

It may import any package of the operator; only the command line imports it.
"""

from __future__ import annotations

from typing import Any

import typer

from millrace_support.help_groups import ADMINISTRATION, CLUSTER, PLANNING
from millrace_support.plan_measurements import PlanMeasurements, ReportRequest, cost_reports
from millrace_support.query_targets import on_cluster

from . import by_name, diff, model, operator, queries, uninstall


def add_to(app: typer.Typer) -> None:
    """Add the commands to the command line of the whole product."""
    app.add_typer(model.app, name="model", rich_help_panel=PLANNING)
    app.command(rich_help_panel=ADMINISTRATION)(operator.operator)
    app.command(hidden=True)(uninstall.check_uninstall)
    cost_reports["calibrate"] = _calibration_report
    on_cluster.update(explain=by_name.explain, get=by_name.get, report=by_name.report)
    for command in (
        queries.status,
        diff.diff,
        queries.top,
        queries.logs,
        queries.pause,
        queries.resume,
        queries.suspend,
        queries.restart,
        queries.scale,
    ):
        app.command(rich_help_panel=CLUSTER)(command)


def _calibration_report(measured: PlanMeasurements, request: ReportRequest) -> tuple[dict[str, Any], list[str]]:
    """Import the model when it is needed: every start of ``millrace`` loads this module."""
    from .calibration_report import calibration_report

    return calibration_report(measured, request)
