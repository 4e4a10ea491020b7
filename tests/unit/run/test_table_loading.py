"""When the streams of a query begin: once a batch has left nothing in the tables, or a query has ended at their ends."""

import pytest

from builders import a_batch
from millrace_api.model.streamquery import Spec
from millrace_jobs.run.steering import TableLoading

STREAM = {"kafka": {"bootstrapServers": "a:9092", "topic": "t"}, "schema": "who STRING, at TIMESTAMP"}
TABLE = STREAM | {"watermark": {"column": "at", "delay": "0s"}, "table": {"keys": ["who"]}}
STATIC = {
    "files": {"path": "a", "format": "csv"},
    "schema": "who STRING",
    "table": {"keys": ["who"], "static": True},
}


def loading(*, once=False, replayed=None, **sources):
    spec = Spec.model_validate({"sources": sources, "query": {"sql": "SELECT 1"}, "sink": {"console": {}}})
    return TableLoading(spec, once=once, replayed=replayed)


@pytest.mark.parametrize(
    ("sources", "waiting"),
    [
        ({"events": STREAM}, ()),
        ({"prices": TABLE}, ()),
        ({"events": STREAM, "towns": STATIC}, ()),
        ({"events": STREAM, "prices": TABLE, "towns": STATIC, "clicks": STREAM}, ("events", "clicks")),
    ],
)
def test_streams_wait_for_tables_that_change(sources, waiting):
    made = loading(**sources)
    assert made.waiting == waiting
    assert made.ended() == bool(waiting)
    assert made.waiting == ()


def test_streams_begin_after_a_batch_that_leaves_nothing_in_any_table():
    made = loading(events=STREAM, prices=TABLE, plans=TABLE)
    for waiting_in in ({"prices": 3, "plans": 0}, {"prices": 0, "plans": 1, "events": 0}):
        made.learn_from(a_batch(waiting_in=waiting_in))
        assert made.waiting == ("events",)
    made.learn_from(a_batch(waiting_in={"prices": 0, "events": 9}))
    assert made.waiting == ()


def test_a_batch_that_an_earlier_run_planned_says_nothing_about_the_tables():
    made = loading(replayed=7, events=STREAM, prices=TABLE)
    made.learn_from(a_batch(batch=7, waiting_in={"prices": 0}))
    assert made.waiting == ("events",)
    made.learn_from(a_batch(batch=8, waiting_in={"prices": 0}))
    assert made.waiting == ()


def test_streams_begin_if_the_tables_have_nothing_new():
    made = loading(events=STREAM, prices=TABLE)
    made.idle()
    assert made.waiting == ()


def test_a_run_that_ends_reads_the_tables_with_a_query_of_their_own():
    made = loading(once=True, events=STREAM, prices=TABLE)
    made.learn_from(a_batch(waiting_in={"prices": 0}))
    made.idle()
    assert made.waiting == ("events",)
    assert made.ended()
    assert not made.ended()
