"""The parts of dashboards: the board itself with its variables, and panels.

There are five kinds of panels: graphs over time, heat maps, timelines, current numbers, and tables of current values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from grafana_foundation_sdk.builders import common, heatmap, prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common as options
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import heatmap as heat_options
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from .selections import SEVERITIES, queries

SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
"""Prometheus data source selected by the user."""

_NEEDS_RULES = "Needs the recording rules of the chart (monitoring.rules)."

RUNBOOKS = "https://millrace.example/docs/runbooks"
"""Placeholder: the chart writes its value ``monitoring.runbookUrl`` instead, or leaves these links out without one."""

KEPT = "${__url_time_range}&${datasource:queryparam}&${cluster:queryparam}"
"""Parameters of a link to another dashboard that keep the time range, the data source and the clusters."""

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
        variables: what the user selects, besides the data source and the cluster.
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
        .with_variable(choice("cluster", queries('namespace!=""', "millrace_operator_leader"), many=True))
    )
    for variable in variables:
        made.with_variable(variable)
    for panel in panels:
        made.with_panel(panel)
    return made.annotation(_plan_changes(plans_of)).annotation(_decisions(plans_of)) if plans_of else made


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


class _Decisions(models.AnnotationQuery):
    """Annotations with a title and a text made of labels, for which the SDK has no fields."""

    def to_json(self) -> dict[str, object]:
        formats = {
            "titleFormat": "{{dimension}}: {{from}} to {{to}}",
            "textFormat": "{{reason}}, {{namespace}}/{{query}}",
        }
        return super().to_json() | formats


class _DecisionsBuilder(builders.AnnotationQuery):
    def __init__(self) -> None:
        super().__init__()
        self._internal = _Decisions()


def _decisions(selector: str) -> builders.AnnotationQuery:
    """Return annotations of the operator's changes of plan: what changed, from and to which number, and why.

    Values become labels by ``count_values``, since the text of an annotation can have labels only.
    """
    by = "cluster, namespace, query"
    # One series of each, whatever else has that name: two of them would be an error for all queries.
    plan = f"max by ({by}, dimension) (namespace_query:millrace_query_plan:max{selector})"
    earlier = f"max by ({by}, dimension) (namespace_query:millrace_query_plan:max{selector} offset 1m)"
    reason = f"topk by ({by}) (1, namespace_query:millrace_query_rescales:increase2m{selector} > 0)"
    after = f'count_values by ({by}, dimension) ("to", {plan} and {plan} != {earlier})'
    before = f'count_values by ({by}, dimension) ("from", {earlier})'
    return (
        _DecisionsBuilder()
        .name("Decisions")
        .datasource(SOURCE)
        .enable(True)
        .icon_color("blue")
        .expr(f"{after} * on ({by}, dimension) group_left (from) {before} * on ({by}) group_left (reason) {reason} ^ 0")
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
    runbook: str = "",
    none: str = "",
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
        runbook: alert whose runbook the panel links to.
        none: text where there are no series because all is well.
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
        panel.axis_soft_max(max(steps))  # lines at 0 alone would have an axis up to 100 or more
    if stacked:
        panel.stacking(common.StackingConfig().mode(options.StackingMode.NORMAL).group("A"))
    if right:
        axis = {"custom.axisPlacement": "right", "unit": right_unit, "decimals": 0}
        panel.override_by_regexp(right, [models.DynamicConfigValue(name, value) for name, value in axis.items()])
    if none:
        panel.no_value(none)
    if runbook:
        panel.links([builders.DashboardLink(f"Runbook: {runbook}").url(f"{RUNBOOKS}/{runbook}.md").target_blank(True)])
    for letter, (name, expr) in zip(_LETTERS, series.items(), strict=False):
        panel.with_target(_query(letter, expr).range().legend_format(name))
    return panel


def heat(title: str, description: str, name: str, expr: str, unit: str, *, width: int = 12) -> heatmap.Panel:
    """Return a heat map over time with a row for each series; ``name`` is the legend, by which rows are ordered."""
    return (
        heatmap.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .height(8)
        .span(width)
        .unit(unit)
        .calculate(False)
        .color(heatmap.HeatmapColorOptions().mode(heat_options.HeatmapColorMode.SCHEME).scheme("Oranges").steps(64))
        .cell_values(heatmap.CellValues().unit(unit))
        .with_target(_query("A", expr).range().legend_format(name))
    )


def timeline(title: str, description: str, series: Mapping[str, str], *, width: int = 24) -> statetimeline.Panel:
    """Return a panel with a bar for each series while it exists, green where its value is 0 and orange above.

    ``series`` are expressions by their legends. One of them should always exist: Grafana reports an error without any.
    """
    panel = (
        statetimeline.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .height(6)
        .span(width)
        .show_value(options.VisibilityMode.NEVER)
        .row_height(0.8)
        .unit("none")
        .color_scheme(builders.FieldColor().mode(models.FieldColorModeId.THRESHOLDS))
        .thresholds(_thresholds({1: "orange"}, "green"))
        .legend(common.VizLegendOptions().show_legend(False))
    )
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


_NAMES = 220
"""Least width of a column with links, which are names, in pixels."""


def rows(
    title: str,
    description: str,
    columns: Mapping[str, tuple[str, str]],
    keys: Mapping[str, str],
    *,
    texts: Mapping[str, tuple[str, str]] = MappingProxyType({}),
    steps: Mapping[str, ColorSteps] = MappingProxyType({}),
    link: tuple[str, str] | None = None,
    sort: str,
    descending: bool = True,
    none: str = "",
    width: int = 24,
    height: int = 10,
) -> table.Panel:
    """Return a table with one row for each set of labels.

    Args:
        description: the question that the table answers.
        columns: expression and unit of each column, by its title; a single one selects the rows, and is not shown.
        keys: titles of the label columns, by label.
        texts: expression and label of each column that shows a label of a row, by its title.
        steps: colors of the values in a column, by its title.
        link: title of a column, and the URL that its values link to; None for no links.
        sort: title of the column to sort by.
        descending: whether the largest value comes first.
        none: text where there is no row because all is well.
        width: width in columns, of 24.
        height: height in lines.
    """
    panel = (
        table.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .height(height)
        .span(width)
        .min_width(80)
        .sort_by([common.TableSortByFieldState().display_name(sort).desc(descending)])
        .with_transformation(models.DataTransformerConfig("merge", options={}))
        .with_transformation(models.DataTransformerConfig("organize", options=_arranged(columns, keys, texts)))
    )
    if none:
        panel.no_value(none)
        for name in keys.values():
            panel.override_by_name(name, [models.DynamicConfigValue("noValue", "-")])
    if "severity" in keys:
        panel.override_by_name(keys["severity"], _in_colors(SEVERITIES))
    if link:
        linked = {"links": [{"title": "Open", "url": link[1]}], "custom.minWidth": _NAMES}
        panel.override_by_name(link[0], [models.DynamicConfigValue(name, value) for name, value in linked.items()])
    shown = [*((expr, ()) for expr, _ in columns.values()), *((expr, (label,)) for expr, label in texts.values())]
    for letter, (expr, others) in zip(_LETTERS, shown, strict=False):
        same = (
            f"max by ({', '.join((*keys, *others))}) ({expr})"  # max drops the metric name, which would split the rows
        )
        panel.with_target(_query(letter, same).instant().format(PromQueryFormat.TABLE))
    for name, (_, unit) in columns.items():
        panel.override_by_name(name, _look(unit, steps.get(name)))
    return panel


def _arranged(
    columns: Mapping[str, tuple[str, str]], keys: Mapping[str, str], texts: Mapping[str, tuple[str, str]]
) -> dict[str, object]:
    """Return Grafana's options for the order and the titles of a table's columns.

    A single value is not shown, nor is that of a text: it only says that there is a row.
    """
    values = {f"Value #{letter}": name for letter, name in zip(_LETTERS, columns, strict=False)}
    labels = {label: name for name, (_, label) in texts.items()}
    renamed = {**keys, **labels, **values}
    order = {name: place for place, name in enumerate(renamed)}
    hidden = {f"Value #{letter}": True for letter in _LETTERS[len(columns) : len(columns) + len(texts)]}
    return {
        "excludeByName": {"Time": True, "Value": len(columns) == 1, **hidden},
        "indexByName": order,
        "renameByName": renamed,
    }


def _in_colors(colors: Mapping[str, str]) -> list[models.DynamicConfigValue]:
    """Return the look of a column of texts with these colors."""
    mapping = {"type": "value", "options": {text: {"color": color} for text, color in colors.items()}}
    return [
        models.DynamicConfigValue("mappings", [mapping]),
        models.DynamicConfigValue("custom.cellOptions", {"type": "color-text"}),
    ]


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
