"""The report of a run: what happened and what was decided over a period, in one HTML file that needs no other."""

import re
from dataclasses import replace

import pytest

from builders import PIN, a_batch
from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_jobs.page.replay import MAX_ENTRIES, MAX_POINTS, EntryKind, replayed
from millrace_jobs.page.report import render_report
from millrace_jobs.selection.switch import Switch
from millrace_support.pages.verdict import Severity
from millrace_support.run_record import DecisionLine, EndLine, MessageLine, StartedLine, halved

from .html_pages import HOSTILE, ParsedPage
from .recorded import a_start, add, an_incident, record_of
from .runs import BEGAN, a_skewed_batch, candidate


def entries(lines, *kinds, **period):
    return [(each.title, each.text) for each in replayed(lines, **period).timeline if each.kind in kinds]


def titles(lines, *kinds, **period):
    return [title for title, _ in entries(lines, *kinds, **period)]


def test_the_timeline_has_each_change_of_the_verdict():
    *_, lines = an_incident()
    assert titles(lines, EntryKind.VERDICT) == [
        "Starting", "Keeping up", "Batches are late", "Falling behind", "Batches are late", "Keeping up",
    ]  # fmt: skip


def test_the_timeline_has_every_decision():
    kept, _, lines = record_of(a_batch(), a_batch(pin=replace(PIN, workers=8, epoch=2)))
    each = {name: candidate(name, seconds) for name, seconds in (("hash", 2.4), ("pkg", 0.8))}
    kept.switched(Switch(1, each["hash"], each["pkg"]))
    assert entries(lines, EntryKind.DECISION) == [
        ("Plan of batch 0", "First plan: pkg, n=4, m=2, epoch 1."),
        ("Plan of batch 1", "pkg, n=4, m=2, epoch 1 became pkg, n=8, m=2, epoch 2."),
        (
            "Decision of auto after batch 1",
            "From hash to pkg, for 800 ms a batch instead of 2.40 s as predicted, because 400 partial results become 400.",
        ),
    ]


def test_tasks_that_follow_the_executors_of_a_plan_are_no_other_plan():
    _, _, lines = record_of(a_batch(), a_batch(pin=replace(PIN, workers=2)))
    assert entries(lines, EntryKind.DECISION)[1] == (
        "Plan of batch 1",
        "Executors of the plan came or went: pkg, n=4, m=2, epoch 1 became pkg, n=2, m=2, epoch 1.",
    )


def test_samples_say_neither_when_the_run_began_nor_how_long_its_start_took():
    _, _, lines = record_of(a_batch())
    assert [text for _, text in entries(lines, EntryKind.RUN)][:2] == [
        "Millrace 0.1.0 starts the query.",
        "After 0 ms, Spark is ready for the first batch.",
    ]
    sampled = [a_start(millrace="", origin="Prometheus at http://prometheus:9090"), *lines[1:]]
    assert entries(sampled, EntryKind.RUN) == [("First sample", "What was before it in this period is not known.")]


def test_decisions_are_marked_in_the_charts():
    *_, lines = record_of(*[a_batch()] * 5, *[a_batch(pin=replace(PIN, epoch=2))] * 5)
    assert render_report(replayed(lines)).decode().count('class="mark"') == 2 * 3  # no latency is known


def test_a_batch_that_takes_long_is_found_although_no_event_says_so():
    kept, clock, lines = record_of(*[a_batch()] * 5)
    clock.now += 300
    add(kept, clock, a_batch(), 5)
    assert "A batch takes long" in titles(lines, EntryKind.VERDICT)


def test_restarts_and_the_end_are_in_the_timeline():
    kept, clock, lines = record_of(*[a_batch()] * 4)
    kept.failing(TransientError(Problem("the broker does not answer", "start it")))
    add(kept, clock, a_batch(), 4)
    kept.failed(MillraceError(Problem("the topic is gone", "create it again")))
    kept.ended("failed")
    assert titles(lines, EntryKind.VERDICT) == [
        "Starting", "Keeping up", "Failing and starting again", "Keeping up", "Failed",
    ]  # fmt: skip
    page = ParsedPage(render_report(replayed(lines)).decode())
    assert "What to do: create it again." in page.texts["verdict"]
    assert "The topic is gone." in page.texts["timeline"]


def test_a_run_that_was_killed_is_said_to_have_no_end():
    _, clock, lines = record_of(a_batch())
    assert titles(lines, EntryKind.RUN) == ["Start", "Started", "End of the record"]
    again = [*lines, a_start(time=clock.now + 60), EndLine(clock.now + 70, "drained")]
    assert titles(again, EntryKind.RUN) == ["Start", "Started", "The run before had ended", "Start", "End"]


def test_a_run_that_failed_has_an_end_also_where_its_reason_is_the_last_event():
    kept, clock, lines = record_of(*[a_batch()] * 5)
    kept.failed(MillraceError(Problem("the topic is gone", "create it again")))
    again = [*lines, a_start(time=clock.now + 60)]
    assert titles(again, EntryKind.RUN) == ["Start", "Started", "Start", "End of the record"]
    kept.ended("failed")
    assert titles(lines, EntryKind.RUN) == ["Start", "Started", "End"]
    assert titles(lines, EntryKind.VERDICT) == ["Starting", "Keeping up", "Failed"]


def test_the_time_between_two_runs_is_that_of_no_batch():
    kept, clock, lines = record_of(*[a_batch()] * 5)
    kept.ended("drained")
    clock.now += 600
    kept.add(a_start(time=clock.now))
    kept.step("starting Spark")
    clock.now += 100
    kept.started(chooses=False, plan_origin="", output="")
    add(kept, clock, a_batch(), 5)
    assert "A batch takes long" not in titles(lines[:-1], EntryKind.VERDICT)


def test_batches_that_were_combined_were_not_one_that_takes_long():
    kept, clock, lines = record_of(*[a_batch()] * 4)
    for number in range(4, 64):
        add(kept, clock, a_batch(), number)
    for _ in range(5):
        lines = halved(lines)
    assert lines[-1].time - lines[-2].time > 30
    assert "A batch takes long" not in titles(lines, EntryKind.VERDICT)


def sampled(newest, step=60.0):
    """What samples say of a driver, one a minute for ten minutes."""
    start = a_start(origin="Prometheus", step=step, newest=newest)
    lines = [start, *record_of(*[a_batch()] * 10)[2][1:]]
    return [replace(each, time=BEGAN + 60 * number) for number, each in enumerate(lines)]


def test_samples_far_apart_are_no_batch_that_takes_long():
    lines = sampled(BEGAN + 660)
    report = replayed(lines, BEGAN, BEGAN + 700)
    assert "A batch takes long" not in [each.title for each in report.timeline]
    assert (report.last, report.view.findings[0].title) == (BEGAN + 700, "Keeping up")


def test_a_driver_without_newer_samples_does_not_keep_up():
    first, *others = replayed(sampled(BEGAN + 660), BEGAN, BEGAN + 1800).view.findings
    assert (first.severity, first.title, others) == (Severity.WARNING, "No figures since 12:11:00", [])
    assert first.reason == (
        "Prometheus has no sample of the driver for the last 19 min 00 s; the figures below are older"
    )
    assert "kubectl describe sq fares" in first.remedy


def test_samples_at_long_intervals_are_not_missing_before_the_next_one():
    report = replayed(sampled(BEGAN + 660, step=600.0), BEGAN, BEGAN + 1800)
    assert report.view.findings[0].title == "Keeping up"


def test_batches_that_a_record_has_dropped_are_counted():
    *_, lines = record_of(a_batch())
    page = render_report(replayed([replace(lines[0], dropped=1200), *lines[1:]])).decode()
    assert "1, 1,200 others were dropped" in page


def test_a_switch_after_no_known_batch_names_none():
    lines = [a_start(), StartedLine(BEGAN, chooses=True), DecisionLine(BEGAN, None, "auto: a switch", "auto")]
    assert replayed(lines).view.why_plan == "A switch."


def test_a_period_has_its_own_batches_and_verdicts():
    *_, lines = an_incident()
    report = replayed(lines, since=BEGAN + 30, until=BEGAN + 50)
    assert (report.first, report.last, report.batches) == (BEGAN + 30, BEGAN + 50, 11)
    assert titles(lines, EntryKind.VERDICT, since=BEGAN + 30, until=BEGAN + 50)[-1] == "Falling behind"
    assert report.view.findings[0].title == "Falling behind"


def test_a_period_without_events_names_that_of_the_record():
    *_, lines = record_of(a_batch())
    with pytest.raises(MillraceError, match=r"it goes from 2013-01-01 12:00:00 UTC to 2013-01-01 12:00:02 UTC"):
        replayed(lines, since=BEGAN + 60)


def test_a_long_run_is_shown_whole_by_few_points_of_which_none_hides_a_peak():
    batches = [a_batch(rows=10)] * 1000
    batches[500] = a_batch(rows=10, seconds=9.0)
    report = replayed(record_of(*batches)[2])
    (utilization,) = next(each for each in report.view.charts if each.id == "utilization").series
    assert len(utilization.points) <= MAX_POINTS
    assert max(value for _, value in utilization.points) == 4.5
    assert report.batches == 1000
    assert report.view.heat.batches[0] < 20
    assert report.slowest_title == "Batch 500: 9 s"


def test_messages_give_way_to_decisions_when_there_are_many():
    *_, lines = record_of(a_batch())
    lines[1:1] = [MessageLine(BEGAN, "again")] * 2 * MAX_ENTRIES
    report = replayed(lines)
    assert len(report.timeline) == MAX_ENTRIES
    assert report.timeline[-1].title == "End of the record"
    assert report.omitted > MAX_ENTRIES
    assert f"{report.omitted:,} entries were left out" in render_report(report).decode()


def test_the_file_needs_no_other_and_runs_nothing():
    *_, lines = record_of(*[a_skewed_batch()] * 5)
    page = ParsedPage(render_report(replayed(lines)).decode())
    assert "script" not in page.tags()
    links = [each[name] for _, each in page.elements for name in ("href", "src", "action") if name in each]
    assert set(links) == {"#charts", "data:,"}
    assert "url(" not in page.texts[""]
    assert "@import" not in page.texts[""]
    (policy,) = [each["content"] for each in page.all("meta") if each.get("http-equiv") == "Content-Security-Policy"]
    assert re.match(r"default-src 'none'; style-src 'sha256-[^']{44}'; img-src data:; ", policy)


def test_texts_of_users_are_texts_and_never_elements():
    kept, _, lines = record_of(a_batch())
    kept.message(HOSTILE)
    kept.failed(MillraceError(Problem(HOSTILE, HOSTILE)))
    page = ParsedPage(render_report(replayed(lines)).decode())
    assert not {"script", "img"} & page.tags()
