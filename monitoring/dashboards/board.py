"""Common parts of all dashboards: variables, links to each other, and the time range."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders.common import VizLegendOptions as Legend
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.common import LegendDisplayMode, LegendPlacement

SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
"""Prometheus data source selected by the user."""

NEEDS_RULES = "Needs the recording rules of the chart (monitoring.rules)."


def board(name: str, title: str, description: str, *variables: Builder[models.VariableModel]) -> builders.Dashboard:
    """Return an empty dashboard at ``/d/millrace-NAME``, with ``variables`` and one for the data source."""
    links = (
        builders.DashboardLink("Millrace")
        .type(models.DashboardLinkType.DASHBOARDS)
        .tags(["millrace"])
        .as_dropdown(True)
        .include_vars(True)
        .keep_time(True)
    )
    made = (
        builders.Dashboard(title)
        .uid(f"millrace-{name}")
        .description(f"{description} {NEEDS_RULES}")
        .tags(["millrace"])
        .time("now-1h", "now")
        .refresh("30s")
        .timezone("browser")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .link(links)
        .with_variable(builders.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    )
    for variable in variables:
        made.with_variable(variable)
    return made


def choice(name: str, label: str, labels_of: str, *, many: bool = False) -> builders.QueryVariable:
    """Return a variable with the values of the label ``name`` in the series of the selector ``labels_of``.

    The user selects one value; with ``many``, any number of values, initially all.
    """
    variable = (
        builders.QueryVariable(name)
        .label(label)
        .datasource(SOURCE)
        .query({"query": f"label_values({labels_of}, {name})", "refId": name})
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
    )
    if many:
        everything = models.VariableOption(selected=True, text="All", value="$__all")
        variable.multi(True).include_all(True).all_value(".*").current(everything)
    return variable


def plan_changes(selector: str) -> builders.AnnotationQuery:
    """Return annotations that mark the times at which a query switched to another plan."""
    return (
        builders.AnnotationQuery()
        .name("Changes of plan")
        .datasource(SOURCE)
        .enable(True)
        .icon_color("purple")
        .expr(f"changes(namespace_query:millrace_plan_epoch:max{selector}[1m]) > 0")
    )


def legend() -> Legend:
    """Return a legend below the graph."""
    return Legend().show_legend(True).display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.BOTTOM).calcs([])
