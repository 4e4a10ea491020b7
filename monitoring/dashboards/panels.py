"""The three kinds of panels: graphs over time, numbers of now, and tables of now."""

from __future__ import annotations

from collections.abc import Mapping

from grafana_foundation_sdk.builders import common, prometheus, stat, table, timeseries
from grafana_foundation_sdk.builders.dashboard import ThresholdsConfig
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common as options
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from .board import SOURCE, legend

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

Panels = list[Builder[models.Panel]]

Steps = Mapping[float, str]
"""Colours by the value from which on they hold; below the first it is green."""


def graph(
    title: str,
    description: str,
    series: Mapping[str, str],
    unit: str,
    *,
    steps: Steps | None = None,
    stacked: bool = False,
    right: str = "",
    right_unit: str = "",
    width: int = 12,
) -> timeseries.Panel:
    """Lines over time.

    Args:
        title: of the panel.
        description: what it answers, and what is good.
        series: expressions by their legend.
        unit: of Grafana's, such as ``s`` or ``percentunit``.
        steps: values at which dashed lines are drawn.
        stacked: whether series are added up.
        right: a legend, as a regular expression, of series with an axis of their own, to the right.
        right_unit: unit of that axis.
        width: of 24.
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
        .legend(legend())
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
    for letter, (name, expr) in zip(LETTERS, series.items(), strict=False):
        panel.with_target(_query(letter, expr).range().legend_format(name))
    return panel


def number(
    title: str,
    description: str,
    expr: str,
    unit: str = "none",
    *,
    steps: Steps | None = None,
    name: str = "",
    decimals: int | None = None,
    width: int = 4,
) -> stat.Panel:
    """One value of now; with ``name``, a legend, that is shown and not the value."""
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
    steps: Mapping[str, Steps],
    link: tuple[str, str],
    sort: str,
) -> table.Panel:
    """A row for each set of labels.

    Args:
        title: of the panel.
        description: what it answers.
        columns: of each the expression and its unit.
        keys: titles of the columns with labels, by label.
        steps: colours of the values of a column.
        link: a column, and where its values lead to.
        sort: the column by which it is sorted, the largest value first.
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
    for letter, (name, (expr, unit)) in zip(LETTERS, columns.items(), strict=False):
        same = f"max by ({', '.join(keys)}) ({expr})"  # with a metric's name, it would have rows of its own
        panel.with_target(_query(letter, same).instant().format(PromQueryFormat.TABLE))
        panel.override_by_name(name, _look(unit, steps.get(name)))
    return panel


def _arranged(columns: Mapping[str, tuple[str, str]], keys: Mapping[str, str]) -> dict[str, object]:
    """The order and the names of a table's columns."""
    values = {f"Value #{letter}": name for letter, name in zip(LETTERS, columns, strict=False)}
    renamed = {**keys, **values}
    order = {name: place for place, name in enumerate(renamed)}
    return {"excludeByName": {"Time": True}, "indexByName": order, "renameByName": renamed}


def _look(unit: str, steps: Steps | None) -> list[models.DynamicConfigValue]:
    look = [models.DynamicConfigValue("unit", unit)]
    if steps:
        look.append(models.DynamicConfigValue("thresholds", _thresholds(steps, "green").build()))
        look.append(models.DynamicConfigValue("custom.cellOptions", {"type": "color-text"}))
    return look


def _query(letter: str, expr: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().ref_id(letter).expr(expr).datasource(SOURCE)


def _thresholds(steps: Steps, below: str) -> ThresholdsConfig:
    colours = [models.Threshold(None, below), *(models.Threshold(value, colour) for value, colour in steps.items())]
    return ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(colours)
