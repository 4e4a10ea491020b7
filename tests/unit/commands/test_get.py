"""``millrace get`` for the name of a query: what is refused before a port is forwarded."""

import pytest

from millrace_api.errors import MillraceError
from millrace_operator.commands import pod_lookups
from millrace_operator.lifecycle.query_view import QueryView
from millrace_support.lookups import Lookup


@pytest.mark.parametrize(
    ("sink", "said"),
    [
        (
            {"console": {}},
            "trips has no result table to look rows up in: its results go to the sink console; "
            "write spec.sink.table: {bootstrapServers: ..., topic: ...} with a compacted topic",
        ),
        (
            {"table": {"topic": "out", "transaction": "Partition"}},
            "the table of trips cannot be looked up, since tasks write it by partition; "
            "write spec.sink.table.transaction: Batch",
        ),
    ],
)
def test_a_query_whose_rows_cannot_be_looked_up_is_refused(monkeypatch, sink, said):
    body = {"metadata": {"name": "trips", "namespace": "a", "uid": "1"}, "spec": {"sink": sink}}
    monkeypatch.setattr(pod_lookups.UserQueries, "get", lambda *_: QueryView(body))
    with pytest.raises(MillraceError) as refused:
        pod_lookups.look_up_in_pod(None, "trips", Lookup())
    assert str(refused.value) == said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("trips", "--query", "q"), "trips is the name of a query on the cluster, to which --query does not apply"),
        (("trips.yaml", "-n", "a"), "trips.yaml is a file, to which --namespace does not apply"),
        (("http://127.0.0.1:1/table", "-n", "a"), "is a URL, to which --namespace does not apply"),
        (("trips", "--prefix"), "--prefix takes one KEY, not 0"),
    ],
)
def test_options_that_do_not_apply_are_refused(millrace, arguments, said):
    millrace("get", *arguments).assert_failed(said)
