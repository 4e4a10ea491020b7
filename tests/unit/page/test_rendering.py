import pytest

from builders import a_batch, a_native_batch, a_query
from millrace_api.errors import MillraceError, Problem
from millrace_jobs.page.charts import nice_top
from millrace_jobs.page.lookup_box import LookupResult
from millrace_jobs.page.rendering import render
from millrace_jobs.pending import CallKind, PendingCall
from millrace_jobs.selection.switch import Switch
from millrace_support.lookups import TableAnswer
from millrace_support.pages.elements import document, element

from .html_pages import HOSTILE, ParsedPage
from .runs import (
    a_join_batch,
    a_join_query,
    a_late_batch,
    a_skewed_batch,
    candidate,
    facts,
    history,
    latencies,
    page_of,
    view_of,
)

SILENT = PendingCall(CallKind.SERVER, "Kafka at b:9092", "reading topic rides", 1, 14.0, 14.0)


def parsed(*args, **options):
    return ParsedPage(page_of(*args, **options))


def test_texts_and_attributes_are_escaped():
    html = document(element("p", HOSTILE, title=HOSTILE)).decode()
    page = ParsedPage(html)
    assert page.elements == [("p", {"title": page.all("p")[0]["title"]})]
    assert "<script>" not in html.replace(page.all("p")[0]["title"], "")
    assert "\x00" not in html
    assert "\x1b" not in html
    assert "\u202e" not in html


def test_what_users_write_is_never_markup():
    kept, clock = history(*[a_skewed_batch()] * 3)
    kept.message(HOSTILE)
    kept.started(chooses=False, plan_origin=HOSTILE, output=HOSTILE)
    kept.failed(MillraceError(Problem(HOSTILE, HOSTILE, field=HOSTILE)))
    known = facts(key=(HOSTILE,), lookups="http://127.0.0.1:1/table")
    rows = [{HOSTILE: HOSTILE, "n": [HOSTILE]}]
    found = LookupResult(HOSTILE, False, TableAnswer("", "fares", 3, rows, None))
    page = ParsedPage(render(view_of(kept, clock, known), found).decode())
    plain = ParsedPage(page_of(*history(a_batch()), facts(key=("k",), lookups="http://127.0.0.1:1/table")))
    assert page.all("script") == [{"src": "page.js", "defer": ""}] == plain.all("script")
    assert "img" not in page.tags()
    assert [name for _, attributes in page.elements for name in attributes if name.startswith("on")] == []
    for section in ("verdict", "messages", "lookup"):
        assert "<script>alert('x')</script>" in page.texts[section]


def test_the_page_says_how_old_its_figures_are_when_no_batch_has_ended_for_a_while():
    kept, clock = history(*[a_batch(waiting=0)] * 3)
    assert dict(view_of(kept, clock).facts)["batch"] == "2"
    clock.now += 40
    assert dict(view_of(kept, clock).facts)["batch"] == "2, ended 40 s ago", "Kafka's lag of 0 is not that of now"


def test_figures_that_are_older_than_the_page_have_their_time_beside_them():
    kept, clock = history(*[a_skewed_batch(waiting=0)] * 3)
    sections = ("charts", "load", "plan", "steps", "state")
    assert [name for name in sections if "as of" in parsed(kept, clock).texts[name]] == []
    clock.now += 40
    page = parsed(kept, clock)
    assert [name for name in sections if "as of 12:00:06 UTC" in page.texts[name]] == list(sections)
    kept.ended("drained")
    assert "as of 12" not in parsed(kept, clock).texts["charts"], "nothing is newer than the figures of a run's end"


def test_the_lag_is_unknown_while_a_broker_does_not_answer():
    kept, clock = history(*[a_batch(waiting=12_345, waiting_in={"trips": 12_345})] * 4)
    assert "unknown" not in page_of(kept, clock)
    page = parsed(kept, clock, facts(pending=lambda: (SILENT,)))
    assert "unknown 12.3k at 12:00:08" in page.texts["charts"]
    assert "12,345" not in page.texts["state"]
    words = [attributes["aria-label"] for attributes in page.all("svg") if "aria-label" in attributes]
    assert "Lag, waiting in the sources, over 4 batches: from 12.3k to 12.3k, now unknown" in words
    kept.ended("drained")
    assert "unknown" not in page_of(kept, clock, facts(pending=lambda: (SILENT,)))


def test_own_code_that_does_not_return_leaves_the_lag_known():
    code = PendingCall(CallKind.CODE, "function a:b", "computing", 1, 21.0, 21.0)
    assert "unknown" not in page_of(*history(a_batch()), facts(pending=lambda: (code,)))


def ticks_of(page, chart):
    """The top of a chart's axis, and what it says of values above."""
    figure = next(text for text in page.split("<figure")[1:] if f'id="chart-{chart}"' in text)
    note = figure.partition('class="cut-note">')[2].partition("<")[0]
    return figure.partition('class="y"')[2].partition("<span>")[2].partition("<")[0], note, figure.count('class="cut"')


@pytest.mark.parametrize(
    ("seconds", "top", "note"),
    [
        ([7.0, *[0.3] * 8], "4", ""),
        ([7.0, *[0.3] * 9], "1", "1 batch above 1 is cut off: 3.5 at 12:00:02"),
        ([7.0, *[0.3] * 19], "1", "1 batch above 1 is cut off: 3.5 at 12:00:02"),
        ([8.0, 6.5, *[0.3] * 38], "1", "2 batches above 1 are cut off, up to 4 at 12:00:02"),
        ([*[0.3] * 19, 7.0], "4", ""),
        ([*[0.3] * 10, *[7.0] * 8, *[0.3] * 10], "4", ""),
        ([1.9, *[1.0] * 19], "1", ""),
    ],
    ids=[
        "too few to say",
        "just enough",
        "a start",
        "two batches of a start",
        "the newest",
        "an incident",
        "little more",
    ],
)
def test_batches_of_a_start_do_not_take_the_room_of_all_others(seconds, top, note):
    page = page_of(*history(*[a_batch(seconds=each, interval=2.0) for each in seconds]))
    assert ticks_of(page, "utilization") == (top, note, len(note) and int(note[0]))


def test_a_page_has_no_style_and_no_script_of_its_own_and_asks_nobody_else():
    page = parsed(*history(*[a_batch()] * 3))
    assert "style" not in page.tags()
    assert [attributes for _, attributes in page.elements if "style" in attributes] == []
    links = [
        attributes.get("href", attributes.get("src"))
        for tag, attributes in page.elements
        if tag in ("link", "script", "a")
    ]
    assert links == ["data:,", "page.css", "page.js", "#charts"]


def test_a_run_without_batches_has_a_verdict_and_says_what_is_missing():
    page = parsed(*history())
    assert "Starting" in page.texts["verdict"]
    assert "No batch has finished." in page.texts["charts"]
    assert "No batch has a plan yet." in page.texts["plan"]
    assert "svg" not in page.tags()


def test_a_failed_run_says_why_and_what_to_do():
    kept, clock = history(a_batch())
    kept.failed(MillraceError(Problem("the topic rides is gone", "create it again")))
    verdict = parsed(kept, clock).texts["verdict"]
    assert "Failed" in verdict
    assert "The topic rides is gone." in verdict
    assert "What to do: create it again." in verdict


def test_charts_have_their_newest_values_and_say_them_in_words():
    page = parsed(*history(*[a_batch(latencies=latencies(1.0, 2.0, 3.0), waiting=12_345)] * 4))
    assert "12.3k" in page.texts["charts"]
    assert "0.42" in page.texts["charts"]
    words = [attributes["aria-label"] for attributes in page.all("svg") if "aria-label" in attributes]
    assert "Lag, waiting in the sources, over 4 batches: from 12.3k to 12.3k, now 12.3k" in words
    assert (
        "Latency, arrival to commit, in seconds, over 4 batches: median: from 2 to 2, now 2 s; p95: from 3 to 3, now 3 s"
        in words
    )


def test_every_image_has_words_or_is_hidden_from_screen_readers():
    page = parsed(*history(*[a_skewed_batch()] * 3))
    assert [each for each in page.all("svg") if not each.get("aria-label") and each.get("aria-hidden") != "true"] == []


def test_every_id_is_there_once_and_every_label_leads_to_one():
    page = parsed(*history(*[a_skewed_batch()] * 3), facts(key=("k",), lookups="http://127.0.0.1:1/table"))
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    labels = {attributes.get(name) for _, attributes in page.elements for name in ("aria-labelledby", "for")} - {None}
    assert labels <= set(ids)


def test_latency_is_unknown_without_times_of_arrival():
    assert "The sources do not say when records arrived." in parsed(*history(a_batch())).texts["charts"]


def test_the_load_of_workers_is_a_heat_map_with_the_shares_of_hot_keys():
    page = parsed(*history(*[a_skewed_batch()] * 3))
    words = [attributes.get("aria-label", "") for attributes in page.all("svg")]
    assert (
        "Records by worker, 3 batches by 4: in batch 2, number 0 has the most, 640 records, 2.6 times the mean" in words
    )
    assert "1st50.0%2nd30.0%3rd20.0%" in page.texts["load"]
    assert "Names of keys are not shown" in page.texts["load"]


def test_a_native_batch_has_no_load_of_workers():
    assert "Spark's own plan runs the batches (native)" in parsed(*history(a_native_batch())).texts["load"]


def test_loads_of_before_a_run_became_native_are_not_shown():
    page = parsed(*history(*[a_skewed_batch()] * 3, *[a_native_batch()] * 3))
    assert "Spark's own plan runs the batches (native)" in page.texts["load"]


def test_a_join_has_both_sides_and_the_matches_of_its_hot_keys():
    page = parsed(*history(*[a_join_batch()] * 3), facts(a_join_query()))
    assert "Both sides of the join, and what waits" in page.texts["state"]
    assert "ordersfiles1207-1m" in page.texts["state"]
    assert "itemsfiles2809-1m" in page.texts["state"]
    assert "Rows and matches by task of the join" in page.texts["load"]
    assert "1st50.0%2nd10.0%Shares of the 800 matches of batch 2." in page.texts["load"]


def test_the_plan_says_what_the_other_algorithms_would_cost():
    each = {"pkg": candidate("pkg", 0.8), "hash": candidate("hash", 2.4, 3.1), "native": candidate("native", 1.2)}
    kept, clock = history(*[a_batch()] * 3)
    kept.predicted(each)
    kept.switched(Switch(1, each["hash"], each["pkg"]))
    kept.started(chooses=True, plan_origin="", output="")
    text = parsed(kept, clock).texts["plan"]
    assert "From hash to pkg, for 800 ms a batch instead of 2.40 s as predicted" in text
    assert "(after batch 1)" in text
    assert "pkg800 msruns now10%400native1.20 s+50%10%400hash2.40 s+200%310%400" in text


@pytest.mark.parametrize(
    ("started", "query", "why"),
    [
        ({"chooses": True}, a_query(), "auto compares the algorithms once two batches with records have finished."),
        ({"plan_origin": "The plan file chooses it."}, a_query(), "The plan file chooses it."),
        ({}, a_query(), "The query has nothing to place"),
        ({}, a_query("spec", "partitioner", value={"algorithm": "pkg"}), "spec.partitioner.algorithm is pkg."),
    ],
)
def test_the_plan_says_where_its_algorithm_comes_from(started, query, why):
    kept, clock = history(a_batch())
    kept.started(**{"chooses": False, "plan_origin": "", "output": ""} | started)
    assert why in parsed(kept, clock, facts(query)).texts["plan"]


def test_the_steps_of_the_newest_batch_follow_one_another():
    page = parsed(*history(a_batch()))
    assert "compute and write700 ms83%" in page.texts["steps"]
    fills = [each for each in page.all("rect") if each.get("class") == "fill"]
    assert [each["x"] for each in fills] == ["0.00%", "1.19%", "3.57%", "9.52%", "92.86%", "95.24%"]


def test_state_and_event_time_are_those_of_the_newest_batch():
    text = parsed(*history(a_batch(late=2, rejected=3))).texts["state"]
    assert "state600 rows" in text
    assert "64.0 KiB" in text
    assert "watermark2013-01-01 11:59:30 UTC" in text
    assert "behind the newest event30 s" in text
    assert "late2rejected3" in text


def test_a_table_can_be_looked_up_on_this_machine_only():
    known = facts(key=("since", "cell"), lookups="http://127.0.0.1:1/table")
    page = parsed(*history(a_batch()), known)
    assert "Key (since, cell)" in page.texts["lookup"]
    assert page.all("form") == [{"method": "get", "action": "#lookup", "role": "search"}]
    elsewhere = parsed(*history(a_batch()), facts(key=("since", "cell")))
    assert "millrace get fares KEY" in elsewhere.texts["lookup"]
    assert "form" not in elsewhere.tags()
    assert "lookup" not in parsed(*history(a_batch())).texts


def looked_up(result):
    known = facts(key=("cell",), lookups="http://127.0.0.1:1/table")
    return ParsedPage(render(view_of(*history(a_batch()), known), result).decode()).texts["lookup"]


def test_rows_that_are_found_are_a_table_and_what_went_wrong_is_said():
    answer = TableAnswer("", "fares", 7, [{"cell": "a", "n": None}, None], None)
    assert "1 row as of batch 7cellnaNULL" in looked_up(LookupResult("a", False, answer))
    nothing = TableAnswer("", "fares", 7, [None], None)
    assert "No row has the key a, as of batch 7." in looked_up(LookupResult("a", False, nothing))
    assert "the key is none" in looked_up(LookupResult("a", False, problem="the key is none"))


def test_a_page_of_a_long_run_is_small():
    many = a_batch(worker_rows=tuple(range(1, 65)), worker_keys=(1,) * 64, distinct_keys=64, latencies=latencies(1, 2))
    kept, clock = history(*[many, a_late_batch()] * 200)
    for number in range(50):
        kept.message(f"{number} " + "x" * 3000)
    assert len(page_of(kept, clock).encode()) < 130_000


@pytest.mark.parametrize(("value", "top"), [(0, 1), (0.3, 0.4), (1, 1), (1.01, 2), (52_000, 60_000), (65_000, 80_000)])
def test_an_axis_ends_at_a_round_number(value, top):
    assert nice_top(value) == pytest.approx(top)
