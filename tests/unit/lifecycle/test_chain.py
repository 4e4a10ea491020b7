"""Chains of queries: who reads what of whom, in which order, and what a query's status says about those before it."""

import re
import threading
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_api.model.files import FilesSourceSpec
from millrace_api.model.status import Attempt, Phase
from millrace_operator.lifecycle.chains.chain_places import MOST_PATTERNS
from millrace_operator.lifecycle.chains.chain_status import MOST_NAMED, chain_status, upstream_condition
from millrace_operator.lifecycle.chains.chain_updates import ChainUpdates
from millrace_operator.lifecycle.chains.chains import Chains
from millrace_operator.lifecycle.chains.upstream import Upstream, UpstreamState

NOW, BEFORE = datetime(2026, 1, 31, 12, 0, tzinfo=UTC), datetime(2026, 1, 31, 10, 0, tzinfo=UTC)
MISSING = Attempt(time="2026-01-31T11:00:00Z", reason="SourceMissing", message="no topic")


def kafka(topic, servers="kafka:9092"):
    return {"bootstrapServers": servers, "topic": topic}


def a_query(name, *reads, writes=None, phase="Running", namespace="shop", generation=1, uid=None, **spec):
    """Return a query as a watch shows it; it reads topics and writes one of its own name unless ``spec`` differs."""
    sources = {f"from_{topic}": {"kafka": kafka(topic), "schema": "n INT"} for topic in reads}
    metadata = {"namespace": namespace, "name": name, "uid": uid or name, "generation": generation}
    status = {"phase": phase, "conditions": [ready(phase == "Running")]} if phase else {}
    return {
        "metadata": metadata,
        "spec": {"sources": sources, "sink": {"kafka": kafka(writes or name)}} | spec,
        "status": status,
    }


def ready(holds, since="2026-01-31T10:00:00Z"):
    status = "True" if holds else "False"
    return {"type": "Ready", "status": status, "reason": "Test", "message": "", "lastTransitionTime": since}


def chains_of(*bodies):
    chains = Chains()
    for body in bodies:
        chains.seen(body)
    return chains


def upstream(chains, name):
    return chains.upstream_of("shop", name)


def links(chains, name):
    return [(link.writer, link.source, link.place) for link in upstream(chains, name).links]


def the_condition(found, last=None):
    held = upstream_condition(found, last, 1, NOW)
    return held.status.value, held.reason, held.message


ORDERS, ENRICHED, TOTALS = a_query("orders"), a_query("enriched", "orders"), a_query("totals", "enriched")


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_a_chain_is_the_same_in_whatever_order_it_is_seen(order):
    chains = chains_of(*([ORDERS, ENRICHED, TOTALS][at] for at in order))
    found = upstream(chains, "totals")
    assert found.order == ("orders", "enriched", "totals")
    assert list(found.states) == ["orders", "enriched"]
    assert links(chains, "totals") == [("enriched", "from_enriched", "topic enriched")]
    assert upstream(chains, "orders") == Upstream()
    assert the_condition(found) == ("True", "UpstreamRunning", "2 of 2 queries before this one run")
    assert the_condition(upstream(chains, "orders")) == ("True", "NoUpstream", "")
    status = chain_status(found)
    assert (status.order, status.depth) == ("orders -> enriched -> totals", 2)
    assert status.upstream[0].to_document() == {
        "name": "enriched",
        "source": "from_enriched",
        "reads": "topic enriched",
        "phase": "Running",
    }
    assert chain_status(Upstream()) is None


READS_FILES = {"sources": {"lines": {"files": {"path": "/data/out", "format": "csv"}, "schema": "n INT"}}}
WRITES_FILES = {"sink": {"files": {"path": "/data/out/", "format": "csv"}}}


def also_writes(sink):
    return {"additionalOutputs": {"final": {"emit": "OnWindowClose", "sink": sink}}}


def reads_kafka(**source):
    return {"sources": {"s": {"kafka": {"bootstrapServers": "kafka:9092"} | source, "schema": "n INT"}}}


@pytest.mark.parametrize(
    ("reader", "writer", "place"),
    [
        (reads_kafka(topic="t"), {"sink": {"table": kafka("t")}}, "topic t"),
        (reads_kafka(topics=["s", "t"]), {"sink": {"kafka": kafka("t")}}, "topic t"),
        (reads_kafka(topicPattern="[tu]"), {"sink": {"kafka": kafka("t")}}, "topic t"),
        (reads_kafka(partitions=[{"topic": "t", "partition": 0}]), {"sink": {"kafka": kafka("t")}}, "topic t"),
        (reads_kafka(topic="t"), {"sink": {"kafka": kafka("t", "other:9092, KAFKA:9092")}}, "topic t"),
        (
            {"sources": {"s": reads_kafka(topic="t")["sources"]["s"] | {"table": {"keys": ["n"]}, "schema": "n INT, at TIMESTAMP", "watermark": {"column": "at", "delay": "1s"}}}},
            {"sink": {"table": kafka("t")}},
            "topic t",
        ),
        (READS_FILES, WRITES_FILES, "files in /data/out/"),
        (
            {"sources": {"lines": {"files": {"path": "/data/out", "format": "parquet"}, "schema": "n INT"}}},
            {"sink": {"delta": {"path": "/data/out"}}},
            "files in /data/out",
        ),
        (READS_FILES, {"sink": {"console": {}}} | also_writes(WRITES_FILES["sink"]), "files in /data/out/"),
        (reads_kafka(topic="t"), WRITES_FILES | also_writes({"table": kafka("t")}), "topic t"),
        (reads_kafka(topic="t"), {"sink": {"kafka": kafka("t", "other:9092")}}, None),
        (reads_kafka(topic="t"), {"sink": {"kafka": kafka("u")}}, None),
        (reads_kafka(topic="t"), WRITES_FILES, None),
        (READS_FILES, {"sink": {"kafka": kafka("t")}}, None),
        (READS_FILES, {"sink": {"console": {}}}, None),
        ({"sources": {"s": {"rate": {}}}}, {"sink": {"kafka": kafka("t")}}, None),
        ({"sources": {"s": {"kafka": {}}}}, {"sink": {"kafka": kafka("t")}}, None),
        (reads_kafka(topic="t"), {"sink": {"kafka": {}}}, None),
    ],
)  # fmt: skip
def test_a_source_is_linked_to_the_sink_whose_results_it_reads(reader, writer, place):
    chains = chains_of(a_query("reader", **{"sink": {"console": {}}} | reader), a_query("writer", **writer))
    assert [link[2] for link in links(chains, "reader")] == ([] if place is None else [place])


PATHS = [
    "/data/out",
    "/data/o*",
    "/data/out/*.csv",
    "/d?ta/[no]ut/batch-*",
    "/data/*/*",
    "/data/out/x",
    "/data",
    "/*",
    "/data/out/*/y",
]
PATTERNS = ["t", "t.*", "[tu]", "(?i)T", "u|t1", ".*1"]


@given(
    st.lists(st.tuples(st.sampled_from(PATHS), st.sampled_from(["/data/out", "/data/not/", "/x"])), max_size=6),
    st.lists(st.tuples(st.sampled_from(PATTERNS), st.sampled_from(["t", "u", "t1", "T"])), max_size=6),
    st.randoms(use_true_random=False),
)
def test_the_index_finds_all_that_a_comparison_of_all_pairs_finds(paths, topics, chance):
    files = [
        a_query(f"f{number}", sources={"s": {"files": {"path": read, "format": "csv"}, "schema": "n INT"}},
                sink={"files": {"path": written, "format": "csv"}})
        for number, (read, written) in enumerate(paths)
    ]  # fmt: skip
    streams = [
        a_query(f"k{number}", **reads_kafka(topicPattern=read), writes=written)
        for number, (read, written) in enumerate(topics)
    ]
    bodies = files + streams
    chance.shuffle(bodies)
    chains = chains_of(*bodies)
    for number, (read, _) in enumerate(paths):
        expected = {
            f"f{other}"
            for other, (_, written) in enumerate(paths)
            if other != number
            and FilesSourceSpec(path=read, format="csv").reads(f"{written}/batch-0000000000-0000.csv")
        }
        assert {link[0] for link in links(chains, f"f{number}")} == expected
    for number, (read, _) in enumerate(topics):
        expected = {f"k{n}" for n, (_, written) in enumerate(topics) if n != number and re.fullmatch(read, written)}
        assert {link[0] for link in links(chains, f"k{number}")} == expected


def test_patterns_beyond_the_limit_of_a_namespace_are_not_compared_and_others_are():
    readers = [
        a_query(f"r{n:03}", **reads_kafka(topicPattern=f"t|{n}"), writes="none") for n in range(MOST_PATTERNS + 1)
    ]
    chains = chains_of(*readers, a_query("named", "t", writes="none"), a_query("writer", writes="t"))
    assert [links(chains, each)[:1] != [] for each in ("r000", "r127", "r128", "named")] == [True, True, False, True]
    chains.gone(readers[0])
    chains.seen(a_query("r128", **reads_kafka(topicPattern="t|z"), writes="none", generation=2))
    assert links(chains, "r128") == [("writer", "s", "topic t")]


def test_changes_of_a_busy_namespace_wait_for_those_of_others():
    """Namespaces take turns, and only the latest change of a query counts."""
    stored, may_go, chains = [], threading.Event(), Chains()

    class Slow(Chains):
        def seen(self, body):
            may_go.wait(60)
            stored.append((body["metadata"]["namespace"], body["metadata"]["name"], body["metadata"]["generation"]))
            return chains.seen(body)

    changed = []
    updates = ChainUpdates(Slow(), changed.append)
    for generation in (1, 2):
        for number in range(5):
            updates.note(a_query(f"m{number}", generation=generation, namespace="mallory"))
    updates.note(ORDERS)
    updates.note(ENRICHED)
    updates.note(ORDERS, gone=True)
    updates.start()
    assert not updates.wait(0.01)
    may_go.set()
    assert updates.wait(60)
    updates.stop()
    assert [each for each in stored if each[0] == "shop"] == [("shop", "enriched", 1)]
    assert stored.index(("shop", "enriched", 1)) <= 2
    assert stored[-1] == ("mallory", "m4", 2)
    assert len(stored) == 6


def test_only_queries_of_one_namespace_form_a_chain():
    chains = chains_of(ENRICHED, a_query("orders", namespace="other"))
    assert upstream(chains, "enriched") == Upstream()


def test_what_does_not_run_is_named_also_beyond_the_next_query():
    chains = chains_of(a_query("orders", phase="Failed"), a_query("enriched", "orders", phase=None), TOTALS)
    found = upstream(chains, "totals")
    said = "orders is Failed, enriched (topic enriched) is new"
    assert the_condition(found) == ("False", "UpstreamNotRunning", said)
    assert the_condition(found, MISSING) == ("False", "WaitingForUpstream", said)
    assert the_condition(found, MISSING.model_copy(update={"reason": "SourceFailed"}))[1] == "UpstreamNotRunning"


def test_a_changed_state_or_spec_is_reported_for_the_queries_after_it_and_nothing_else_is():
    chains = chains_of(ORDERS, ENRICHED, TOTALS, a_query("prices"))
    after = {("shop", "enriched"), ("shop", "totals")}
    assert chains.seen(ORDERS) == set()
    assert chains.seen(a_query("orders", phase="Draining")) == after
    assert chains.seen(a_query("totals", "enriched", phase="Failed")) == set()
    assert chains.seen(a_query("enriched", "prices", generation=2)) == {("shop", "totals")}
    assert upstream(chains, "totals").order == ("prices", "enriched", "totals")
    assert chains.seen(a_query("orders", phase="Suspended")) == set()
    assert chains.gone(a_query("prices")) == after
    assert upstream(chains, "totals").order == ("enriched", "totals")
    assert chains.gone(a_query("prices")) == set()


def test_the_end_of_an_earlier_query_does_not_remove_a_later_one_of_its_name():
    chains = chains_of(ORDERS, ENRICHED)
    chains.seen(a_query("orders", uid="later"))
    assert chains.gone(ORDERS) == set()
    assert links(chains, "enriched") == [("orders", "from_orders", "topic orders")]


def test_a_cycle_is_reported_for_its_queries_and_for_those_after_it():
    chains = chains_of(a_query("a", "c"), a_query("b", "a"), a_query("c", "b"), a_query("after", "b"))
    assert upstream(chains, "b").order == ("b", "c", "a", "b")
    status, reason, message = the_condition(upstream(chains, "after"))
    assert (status, reason) == ("False", "Cycle")
    assert "a -> b -> c -> a" in message
    found = chain_status(upstream(chains, "b"))
    assert (found.order, found.depth) == ("b -> c -> a -> b", None)
    assert set(upstream(chains, "b").states) == {"a", "c"}


def test_a_status_is_bounded():
    many = [a_query(f"q{number}", phase="Failed") for number in range(40)]
    line = [a_query(f"l{number}", f"l{number - 1}") for number in range(1200)]
    chains = chains_of(*many, *line, a_query("all", *(f"q{number}" for number in range(40))))
    found = upstream(chains, "all")
    assert len(chain_status(found).upstream) == MOST_NAMED
    assert the_condition(found)[2].endswith("is Failed, and 36 more")
    status = chain_status(upstream(chains, "l1199"))
    assert status.depth == 1199
    assert status.order.startswith("... -> l1184 -> ")
    deep = a_query("w", sink={"files": {"path": f"/{'x' * 4000}", "format": "csv"}})
    reader = {"sources": {"s": {"files": {"path": f"/{'x' * 4000}", "format": "csv"}, "schema": "n INT"}}}
    found = upstream(chains_of(deep, a_query("r", **reader)), "r")
    assert len(chain_status(found).upstream[0].reads) == 256


def test_the_queries_before_are_ready_since_the_last_one_became_ready():
    found = Upstream(states={"a": UpstreamState(Phase.RUNNING, NOW), "b": UpstreamState(Phase.RUNNING, BEFORE)})
    assert found.ready_since == NOW
    assert Upstream(states={"a": UpstreamState(Phase.RUNNING, NOW), "b": UpstreamState()}).ready_since is None
    assert Upstream().ready_since is None
    assert upstream(chains_of(ORDERS, ENRICHED), "enriched").ready_since == BEFORE


def test_a_status_of_another_version_is_one_that_is_not_known():
    strange = a_query("orders") | {"status": {"phase": "Dreaming"}}
    assert upstream(chains_of(strange, ENRICHED), "enriched").states == {"orders": UpstreamState()}


EDGES = st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5)).filter(lambda edge: edge[0] != edge[1]))


@given(EDGES, EDGES, st.lists(st.integers(0, 5), max_size=3), st.sampled_from([1, 2, 64]))
def test_an_index_that_was_changed_is_one_that_was_just_made(before, after, removed, most):
    def bodies(edges, generation):
        return [
            a_query(f"q{n}", *(f"q{writer}" for writer, reader in sorted(edges) if reader == n), generation=generation)
            for n in range(6)
        ]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("millrace_operator.lifecycle.chains.chains.MOST_WRITERS", most)
        changed = chains_of(*bodies(before, 1))
        for body in bodies(after, 2):
            changed.seen(body)
        for number in removed:
            changed.gone(a_query(f"q{number}"))
        made = chains_of(*(body for n, body in enumerate(bodies(after, 2)) if n not in removed))
    for number in range(6):
        assert upstream(changed, f"q{number}") == upstream(made, f"q{number}")
        assert len({link.writer for link in upstream(made, f"q{number}").links}) <= most


def test_an_index_can_be_read_while_it_changes():
    chains, failures = chains_of(ORDERS, ENRICHED, TOTALS), []

    def change():
        for generation in range(2, 300):
            chains.seen(a_query("enriched", "orders", generation=generation))
            chains.gone(ORDERS)
            chains.seen(ORDERS)

    thread = threading.Thread(target=change)
    thread.start()
    while thread.is_alive():
        found = upstream(chains, "totals")
        if found.order[-1] != "totals" or not {link.writer for link in found.links} <= set(found.states):
            failures.append(found)
    thread.join()
    assert failures == []
