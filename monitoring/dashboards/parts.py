"""The parts of dashboards: the board itself with its variables, and panels.

There are three kinds of panels: graphs over time, current numbers, and tables of current values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from grafana_foundation_sdk.builders import common, prometheus, stat, table, timeseries
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common as options
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
"""Prometheus data source selected by the user."""

_NEEDS_RULES = "Needs the recording rules of the chart (monitoring.rules)."

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

Panel = Builder[models.Panel]
Variable = Builder[models.VariableModel]

ColorSteps = Mapping[float, str]
"""Colors by their lowest value; values below the first step have the panel's base color."""


def board(
    name: str,
    description: str,
    variables: Iterable[Variable],
    panels: Iterable[Panel],
    *,
    plans_of: str = "",
) -> builders.Dashboard:
    """Return the dashboard ``Millrace / Name`` at ``/d/millrace-NAME``.

    Args:
        name: name of its file, in lower case.
        description: the question that the dashboard answers.
        variables: what the user selects, besides the data source.
        panels: panels, in reading order.
        plans_of: selector of the queries whose changes of plan are marked in all graphs; none if empty.
    """
    links = (
        builders.DashboardLink("Millrace")
        .type(models.DashboardLinkType.DASHBOARDS)
        .tags(["millrace"])
        .as_dropdown(True)
        .include_vars(True)
        .keep_time(True)
    )
    made = (
        builders.Dashboard(f"Millrace / {name.capitalize()}")
        .uid(f"millrace-{name}")
        .description(f"{description} {_NEEDS_RULES}")
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
    for panel in panels:
        made.with_panel(panel)
    return made.annotation(_plan_changes(plans_of)) if plans_of else made


def choice(name: str, labels_of: str, *, many: bool = False) -> builders.QueryVariable:
    """Return a variable with the values of the label ``name`` in the series of the selector ``labels_of``.

    The user selects one value; with ``many``, any number of values, initially all.
    """
    variable = (
        builders.QueryVariable(name)
        .label(name.capitalize())
        .datasource(SOURCE)
        .query({"query": f"label_values({labels_of}, {name})", "refId": name})
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
    )
    if many:
        everything = models.VariableOption(selected=True, text="All", value="$__all")
        variable.multi(True).include_all(True).all_value(".*").current(everything)
    return variable


def _plan_changes(selector: str) -> builders.AnnotationQuery:
    """Return annotations at the times when a query switched to another plan."""
    return (
        builders.AnnotationQuery()
        .name("Changes of plan")
        .datasource(SOURCE)
        .enable(True)
        .icon_color("purple")
        .expr(f"changes(namespace_query:millrace_plan_epoch:max{selector}[1m]) > 0")
    )


def graph(
    title: str,
    description: str,
    series: Mapping[str, str],
    unit: str,
    *,
    steps: ColorSteps | None = None,
    stacked: bool = False,
    right: str = "",
    right_unit: str = "",
    width: int = 12,
) -> timeseries.Panel:
    """Return a graph of lines over time.

    Args:
        description: the question that the panel answers, and which values are good.
        series: expressions by their legend.
        unit: Grafana unit, such as ``s`` or ``percentunit``.
        steps: values at which dashed lines are drawn.
        stacked: whether series are added up.
        right: regular expression for the legends of series that have their own axis, on the right.
        right_unit: unit of that axis.
        width: width in columns, of 24.
    """
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .height(8)
        .span(width)
        .unit(unit)
        .min(0)
        .line_width(1)
        .fill_opacity(30 if stacked else 0)
        .show_points(options.VisibilityMode.NEVER)
        .legend(_legend())
        .tooltip(common.VizTooltipOptions().mode(options.TooltipDisplayMode.MULTI).sort(options.SortOrder.DESCENDING))
    )
    if steps:
        line = common.GraphThresholdsStyleConfig().mode(options.GraphThresholdsStyleMode.DASHED)
        panel.thresholds(_thresholds(steps, "transparent")).thresholds_style(line)
    if stacked:
        panel.stacking(common.StackingConfig().mode(options.StackingMode.NORMAL).group("A"))
    if right:
        axis = {"custom.axisPlacement": "right", "unit": right_unit, "decimals": 0}
        panel.override_by_regexp(right, [models.DynamicConfigValue(name, value) for name, value in axis.items()])
    for letter, (name, expr) in zip(_LETTERS, series.items(), strict=False):
        panel.with_target(_query(letter, expr).range().legend_format(name))
    return panel


def number(
    title: str,
    description: str,
    expr: str,
    unit: str = "none",
    *,
    steps: ColorSteps | None = None,
    name: str = "",
    decimals: int | None = None,
    width: int = 4,
) -> stat.Panel:
    """Return a panel with one current value; with ``name``, it shows that legend instead of the value."""
    panel = (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .height(4)
        .span(width)
        .unit(unit)
        .no_value("-")
        .graph_mode(options.BigValueGraphMode.NONE)
        .color_mode(options.BigValueColorMode.VALUE)
        .text_mode(options.BigValueTextMode.NAME if name else options.BigValueTextMode.VALUE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .thresholds(_thresholds(steps, "green") if steps else _thresholds({}, "text"))
        .with_target(_query("A", expr).instant().legend_format(name))
    )
    return panel if decimals is None else panel.decimals(decimals)


def rows(
    title: str,
    description: str,
    columns: Mapping[str, tuple[str, str]],
    keys: Mapping[str, str],
    *,
    steps: Mapping[str, ColorSteps],
    link: tuple[str, str],
    sort: str,
) -> table.Panel:
    """Return a table with one row for each set of labels.

    Args:
        description: the question that the table answers.
        columns: expression and unit of each column, by its title.
        keys: titles of the label columns, by label.
        steps: colors of the values in a column, by its title.
        link: title of a column, and the URL that its values link to.
        sort: title of the column to sort by, largest value first.
    """
    panel = (
        table.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .height(10)
        .span(24)
        .sort_by([common.TableSortByFieldState().display_name(sort).desc(True)])
        .with_transformation(models.DataTransformerConfig("merge", options={}))
        .with_transformation(models.DataTransformerConfig("organize", options=_arranged(columns, keys)))
        .override_by_name(link[0], [models.DynamicConfigValue("links", [{"title": "Open", "url": link[1]}])])
    )
    for letter, (name, (expr, unit)) in zip(_LETTERS, columns.items(), strict=False):
        same = f"max by ({', '.join(keys)}) ({expr})"  # max drops the metric name, which would split the rows
        panel.with_target(_query(letter, same).instant().format(PromQueryFormat.TABLE))
        panel.override_by_name(name, _look(unit, steps.get(name)))
    return panel


def _arranged(columns: Mapping[str, tuple[str, str]], keys: Mapping[str, str]) -> dict[str, object]:
    """Return Grafana's options for the order and the titles of a table's columns."""
    values = {f"Value #{letter}": name for letter, name in zip(_LETTERS, columns, strict=False)}
    renamed = {**keys, **values}
    order = {name: place for place, name in enumerate(renamed)}
    return {"excludeByName": {"Time": True}, "indexByName": order, "renameByName": renamed}


def _look(unit: str, steps: ColorSteps | None) -> list[models.DynamicConfigValue]:
    look = [models.DynamicConfigValue("unit", unit)]
    if steps:
        look.append(models.DynamicConfigValue("thresholds", _thresholds(steps, "green").build()))
        look.append(models.DynamicConfigValue("custom.cellOptions", {"type": "color-text"}))
    return look


def _query(letter: str, expr: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().ref_id(letter).expr(expr).datasource(SOURCE)


def _thresholds(steps: ColorSteps, below: str) -> builders.ThresholdsConfig:
    colors = [models.Threshold(None, below), *(models.Threshold(value, color) for value, color in steps.items())]
    return builders.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(colors)


def _legend() -> common.VizLegendOptions:
    """Return a legend below the graph."""
    legend = common.VizLegendOptions().show_legend(True).display_mode(options.LegendDisplayMode.LIST)
    return legend.placement(options.LegendPlacement.BOTTOM).calcs([])
