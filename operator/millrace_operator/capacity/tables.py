"""Reports on the capacity of a flow as tables."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

_WIDEST = 250
"""Characters per line of a table: wide enough to cut no figure; a narrow terminal wraps the lines."""

Report = dict[str, Any]


def print_prediction(report: Report) -> None:
    """Print the prediction."""
    table = _table(
        "Predicted",
        "tasks",
        "batch",
        "arriving\nrecords/s",
        "input\nbatch",
        "bytes of\na record",
        "capacity\nrecords/s",
        "utilization",
        "throughput\nrecords/s",
        "lacks",
    )
    for operator in report["operators"]:
        table.add_row(
            operator["name"],
            *_sizing(operator),
            _figure(operator["input_records_per_second"]),
            _figure(operator["input_batch_records"]),
            _figure(operator["input_record_bytes"]),
            _figure(operator["capacity_records_per_second"], "no limit"),
            f"{operator['utilization']:.1%}",
            _figure(operator["throughput_records_per_second"]),
            ", ".join(operator["overloaded"]) or "-",
        )
    console = _console()
    _print_query(console, report)
    console.print(table)
    _print_turns(console, report)
    for name, rate in report["workload_records_per_second"].items():
        passing = report["throughput_records_per_second"][name]
        console.print(f"{name}: {_figure(passing)} of {_figure(rate)} records/s get through")
    _print_buffers(console, report["buffers"])


def print_bottlenecks(report: Report) -> None:
    """Print the bottlenecks."""
    console = _console()
    _print_query(console, report)
    if not report["bottlenecks"]:
        console.print("no operator is overloaded")
        return
    table = _table(
        "Overloaded", "lacks", "tasks", "batch", "arriving\nrecords/s", "capacity\nrecords/s", "what would help"
    )
    table.columns[-1].justify = "left"
    for operator in report["bottlenecks"]:
        table.add_row(
            operator["name"],
            ", ".join(operator["overloaded"]),
            *_sizing(operator),
            _figure(operator["input_records_per_second"]),
            _figure(operator["capacity_records_per_second"]),
            operator["advice"],
        )
    table.caption = (
        "Operators after an overloaded one get only what it lets through, and may turn out to be overloaded too;"
        "\n`minimize` sizes all of them at once."
    )
    console.print(table)
    _print_turns(console, report)


def print_fewest_tasks(report: Report) -> None:
    """Print the configuration with the fewest tasks."""
    table = _table("Fewest tasks", "tasks", "batch", "utilization")
    for operator in report["operators"]:
        table.add_row(operator["name"], *_sizing(operator), f"{operator['utilization']:.1%}")
    table.caption = f"{report['tasks']} tasks in all"
    console = _console()
    _print_query(console, report)
    console.print(table)
    if "busy_cores" in report:
        console.print(
            f"{_figure(report['busy_cores'])} cores are busy; batches of this size fill in"
            f" {_duration(report['fill_seconds'])}"
        )
    _print_buffers(console, report["buffers"])


def _print_query(console: Console, report: Report) -> None:
    """Print what a running query is looked at under, with W; nothing for a file."""
    query = report.get("query")
    if query is None:
        return
    needed = query["executors_needed"]
    console.print(
        f"{report['file']}: {query['executors']}/{query['parallelism']}/{query['replicas']} "
        f"(executors/parallelism/replicas), a batch every {_duration(query['batch_interval_seconds'])}"
    )
    console.print(
        f"W is predicted to be {query['utilization']:.2f}, {query['utilization_low']:.2f} to "
        f"{query['utilization_high']:.2f}; "
        + (f"{needed} executors would carry the rate" if needed else "no number of executors would carry the rate")
    )


def _print_turns(console: Console, report: Report) -> None:
    """Print how operators that take turns divide the time; nothing for others."""
    if "cores" not in report:
        return
    shares = report["time_share_of_operators"].items()
    each = ", ".join(f"{name} {share:.0%}" for name, share in shares if share)
    left = report["time_share_left_to_operators"]
    console.print(f"In turn on {report['cores']} cores, of the time: {each}; {max(left, 0):.0%} is left to them")
    if left <= 0:
        console.print("A batch takes longer than its interval even without its stages: try a longer --interval")


def _print_buffers(console: Console, report: Report) -> None:
    """Print the distinct and shared output buffers side by side; nothing if all batches are single records."""
    distinct, shared = report["distinct"], report["shared"]
    pairs = list(zip(distinct["operators"], shared["operators"], strict=True))
    if all(one["mean_wait_seconds"] == 0 for one, _ in pairs):
        return
    table = _table(
        "Output buffers of a task: distinct / shared",
        "buffers",
        "records\nheld",
        "memory",
        "mean wait\nof a record",
    )
    for one, other in pairs:
        table.add_row(
            one["name"],
            *(
                f"{show(one[field])} / {show(other[field])}"
                for field, show in (
                    ("buffers_per_task", _figure),
                    ("buffered_records_per_task", _figure),
                    ("buffered_bytes_per_task", lambda size: decimal(round(size))),
                    ("mean_wait_seconds", _duration),
                )
            ),
        )
    added = " / ".join(_duration(each["added_latency_seconds"]) for each in (distinct, shared))
    table.caption = f"{added} added on the slowest path from source to sink, mean"
    console.print()
    console.print(table)


def _console() -> Console:
    return Console(width=_WIDEST, highlight=False, emoji=False)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", caption_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("operator", vertical="bottom")
    for column in columns:
        table.add_column(column, justify="right", vertical="bottom")
    return table


def _sizing(operator: Report) -> tuple[str, str]:
    return _figure(operator["tasks"]), _figure(operator["output_batch_records"])


def _figure(number: float | None, nothing: str = "-") -> str:
    if number is None:
        return nothing
    return f"{number:,.0f}" if number >= 100 or number == int(number) else f"{number:.3g}"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "forever"
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"
