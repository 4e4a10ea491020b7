import io
import os
import re
import shlex
import threading
from dataclasses import replace
from itertools import chain, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from builders import PIN, a_batch, a_native_batch
from millrace_api.errors import MillraceError
from millrace_jobs.display.display import display_for
from millrace_jobs.display.live import SHOWN_BATCHES, LiveDisplay
from millrace_jobs.display.plain import PlainDisplay, ResultsConsole
from millrace_support.run_figures import RunSummary

SUMMARY = RunSummary(
    outcome="finished",
    batches=84,
    rows=336_776,
    results=1234,
    rejected=2,
    late=15,
    seconds=72.0,
    mean_utilization=0.42,
    p95_utilization=0.8,
    plan_changes=2,
    output="out/carriers",
    start_seconds=11.5,
)


class Screen(io.StringIO):
    """What a terminal was sent."""

    def isatty(self):
        return True


def terminal():
    return Console(file=Screen(), width=100, color_system="truecolor", _environ={"TERM": "xterm"})


def pipe(width=80):
    return Console(file=io.StringIO(), force_terminal=False, width=width, _environ={})


def lines(console):
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def plain(console=None):
    console = console or pipe()
    return console, PlainDisplay(console, "flights")


def frame(display, *, styles=False):
    """What the live part shows now."""
    console = Console(file=io.StringIO(), record=True, width=100, _environ={})
    console.print(display.render())
    return [line.rstrip() for line in console.export_text(styles=styles).splitlines()]


def live(*reports):
    display = LiveDisplay(terminal(), "flights", clock=chain([100.0], repeat(172.0)).__next__)
    for report in reports:
        display.batch(report)
    return display


@pytest.mark.parametrize(
    ("console", "kind"),
    [
        (terminal(), LiveDisplay),
        (pipe(), PlainDisplay),
        (Console(file=Screen(), _environ={"TERM": "dumb"}), PlainDisplay),
        (Console(file=io.StringIO(), _environ={"TERM": "xterm", "FORCE_COLOR": "1"}), PlainDisplay),
        (Console(file=io.StringIO(), _environ={"TERM": "xterm", "TTY_COMPATIBLE": "1"}), PlainDisplay),
    ],
)
def test_the_display_is_live_only_where_the_cursor_moves(console, kind):
    assert type(display_for(console, "flights")) is kind


def test_a_plain_run_is_printed_line_by_line():
    console, display = plain()
    display.started({"sources": "flights (replay)", "metrics": "http://127.0.0.1:9090/metrics"})
    display.batch(a_batch(batch=12, waiting=70, late=3, rejected=1))
    display.message("plan 2: hash, m=1, n=2, from the next batch on")
    display.batch(a_native_batch(batch=13, seconds=0.0, rows=0, results=0))
    display.batch(a_native_batch(batch=14, pin=None, rows=12, seconds=3))
    display.finished(SUMMARY)
    display.close()
    assert lines(console) == [
        'started=flights sources="flights (replay)" metrics=http://127.0.0.1:9090/metrics',
        "batch=12 rows=5000 rows_per_s=5952 results=- W=0.42 lag=70 imbalance=0.03 plan=pkg/2/4 late=3 rejected=1",
        "note: plan 2: hash, m=1, n=2, from the next batch on",
        "batch=13 rows=0 rows_per_s=0 results=0 W=0.00 lag=0 imbalance=- plan=native/2/4 late=0 rejected=0",
        "batch=14 rows=12 rows_per_s=4 results=- W=1.50 lag=0 imbalance=- plan=- late=0 rejected=0",
        "finished=flights batches=84 rows=336776 rows_per_s=4677 results=1234 late=15 rejected=2 start_seconds=11.5 seconds=72.0"
        " W_mean=0.42 W_p95=0.80 plan_changes=2 output=out/carriers",
    ]


def test_plain_results_are_quoted_and_a_run_without_a_batch_has_no_utilization():
    console, display = plain()
    display.table("results of batch 3", ["since", "n", "n"], [("2013-01-01 12:00", None, 2), ('a "b"', "", "[red]:x:")])
    display.finished(replace(SUMMARY, outcome="failed", mean_utilization=None, p95_utilization=None))
    assert lines(console)[:3] == [
        "note: results of batch 3",
        'since="2013-01-01 12:00" n=NULL n=2',
        'since="a \\"b\\"" n="" n=[red]:x:',
    ]
    assert lines(console)[3].startswith("failed=flights ")
    assert " W_mean=- W_p95=- " in lines(console)[3]


def test_rows_go_to_where_results_go_and_progress_does_not():
    progress, results = pipe(), pipe()
    display = PlainDisplay(progress, "flights", results)
    display.batch(a_batch())
    display.table("results of batch 3", ["cell", "n"], [("A", 1)])
    assert lines(results) == ["cell=A n=1"]
    assert [line.partition(" ")[0] for line in lines(progress)] == ["batch=12", "note:"]


@pytest.mark.parametrize("environment", [{}, {"FORCE_COLOR": "1"}, {"TTY_COMPATIBLE": "1"}])
def test_a_live_table_leaves_results_to_a_file_and_to_nothing_else(environment):
    console, results = terminal(), Console(file=io.StringIO(), _environ=environment)
    display = LiveDisplay(console, "flights", results)
    display.started({})
    print("of a library")
    display.table("results of batch 12", ["cell", "n"], [("A", 1)])
    display.close()
    assert lines(results) == ["cell=A n=1"]
    assert "cell" not in console.file.getvalue()
    assert "of a library" not in console.file.getvalue()


def test_a_closed_output_of_results_is_an_error_in_one_sentence_and_leaves_nothing_to_write():
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as closed:
        display = PlainDisplay(pipe(), "flights", ResultsConsole(file=closed, _environ={}))
        with pytest.raises(MillraceError, match=r"^standard output was closed before the end of the results; read it"):
            display.table("results of batch 3", ["cell", "n"], [("A", 1)])


@given(st.integers(1, 200), st.lists(st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters="\\'"))))
def test_a_plain_line_is_never_broken_and_can_be_read_back(width, values):
    console, display = plain(pipe(width))
    names = [f"c{number}" for number in range(len(values))]
    display.table("t", names, [values])
    assert len(lines(console)) == 2
    read = [field.split("=", 1) for field in shlex.split(lines(console)[1])]
    assert read == [[name, value] for name, value in zip(names, values, strict=True)]


def test_a_live_frame_shows_the_last_batches():
    batches = [
        a_batch(batch=7, rows=123_456, waiting=2_500_000, late=3, results=274),
        a_native_batch(batch=8, seconds=1.7),
        a_batch(batch=9, seconds=2.5, rejected=12, pin=replace(PIN, algorithm="shuffle", replicas=3, workers=16)),
    ]
    assert frame(live(*batches)) == [
        "flights  0:01:12  watermark 2013-01-01 11:59:30Z",
        "batch   rows  rows/s  results     W    lag  imbalance  plan              late  rejected",
        "───────────────────────────────────────────────────────────────────────────────────────",
        "    7   123k    147k      274  0.42  2.50M       0.03  pkg m=2 n=4          3         0",
        "    8  5,000   2,941        -  0.85      0          -  native m=2 n=4       0         0",
        "    9  5,000   2,000        -  1.25      0       0.03  shuffle m=3 n=16     0        12",
    ]


def test_a_live_frame_shows_the_running_batch():
    now = [140.0]
    display = LiveDisplay(terminal(), "flights", clock=lambda: now[0])
    display.batch(a_batch(batch=7))
    display.began(8)
    now[0] = 172.0
    assert re.fullmatch(r" +8 +running, 32\.0 s", frame(display)[-1])
    display.batch(a_batch(batch=8))
    assert re.match(r" +8 +5,000 ", frame(display)[-1])


def test_a_live_frame_shows_what_the_running_batch_waits_for_until_it_ends():
    display = live(a_batch(batch=7))
    display.began(8)
    display.waits(["the function a:b has not returned for 45 s", "Kafka at [b] cannot be reached"])
    assert frame(display)[-2:] == ["the function a:b has not returned for 45 s", "Kafka at [b] cannot be reached"]
    display.waits([])
    assert "running" in frame(display)[-1]
    display.waits(["the function a:b has not returned for 45 s"])
    display.batch(a_batch(batch=8))
    assert frame(display)[-1].lstrip().startswith("8 ")


def test_a_live_frame_waits_for_the_first_batch():
    assert frame(live()) == ["flights  0:01:12  watermark -", "waiting for the first batch"]


def test_live_keeps_the_last_batches_and_the_last_watermark():
    reports = [a_batch(batch=number, watermark=a_batch().watermark if number == 0 else None) for number in range(100)]
    shown = frame(live(*reports))
    assert shown[0].endswith("watermark 2013-01-01 11:59:30Z")
    assert [int(line.split()[0]) for line in shown[3:]] == list(range(100 - SHOWN_BATCHES, 100))


@pytest.mark.parametrize(("seconds", "code"), [(1.58, "32"), (1.6, "33"), (1.99, "33"), (2.0, "1;31")])
def test_utilization_has_a_color(seconds, code):
    row = frame(live(a_batch(seconds=seconds, interval=2.0)), styles=True)[-1]
    assert f"\x1b[{code}m" in row


def test_a_live_run_leaves_messages_results_and_a_summary():
    console = terminal()
    display = LiveDisplay(console, "flights")
    display.started({"metrics": "http://127.0.0.1:9090/metrics"})
    display.batch(a_batch())
    display.message("draining [soon]")
    display.table("results of batch 12", ["cell", "n"], [("[red]\x1b[2J", 1)])
    display.finished(SUMMARY)
    written = console.file.getvalue()
    assert "http://127.0.0.1:9090/metrics" in written
    assert "draining [soon]" in written
    assert r"[red]\x1b[2J" in written
    assert "pkg m=2 n=4" in written
    assert written.count("\x1b[?25l") == written.count("\x1b[?25h") == 1
    summary = written[written.rindex("\x1b[?25h") :]
    for part in (
        "finished",
        "336,776 rows in 84 batches, 0:01:12 (4,677 rows/s), after a start of 11.5 s",
        "1,234 in out/carriers",
        "15 rows",
    ):
        assert part in summary


def test_close_gives_the_terminal_back_once():
    console = terminal()
    display = LiveDisplay(console, "flights")
    display.close()
    display.started({})
    display.close()
    display.close()
    assert console.file.getvalue().count("\x1b[?25h") == 1
    assert not [
        thread
        for thread in threading.enumerate()
        if type(thread).__name__ == "_RefreshThread" and not thread.done.is_set()
    ]


def test_live_takes_calls_from_other_threads():
    console = terminal()
    display = LiveDisplay(console, "flights")
    display.started({})

    def batches():
        for number in range(50):
            display.batch(a_batch(batch=number))
            display.message(f"message {number} of a thread")
            display.render()

    threads = [threading.Thread(target=batches) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    display.finished(SUMMARY)
    assert console.file.getvalue().count("of a thread") == 200
