"""One computation with two outputs on Kafka: a table of what is known so far, and a stream of final results."""

from collections import Counter

import pytest

from lab.topics import committed, rows
from spark.die_between_sinks import die_between_sinks
from spark.joined import duckdb_rows, joining

pytestmark = [pytest.mark.in_turn, pytest.mark.kafka, pytest.mark.spark]

QUESTION = """
    SELECT {since} AS since, e.who, count(*) AS n, sum(e.n) AS total FROM events e GROUP BY {window}, e.who
    HAVING count(*) % 2 = 1"""
LAST = b"4"
"""The batch of the last file, in which some results are final."""

MINUTE = "strftime(make_timestamp(epoch_us(time_bucket(INTERVAL 1 MINUTE, e.at))), '%Y-%m-%dT%H:%M:%S.%fZ')"


@pytest.mark.parametrize(
    ("emit", "stays", "dies"), [("OnUpdate", False, False), ("OnWindowEnd", True, False), ("OnWindowEnd", True, True)]
)
def test_a_table_and_a_topic_of_final_results_come_from_one_computation(
    broker, make_topic, tmp_path, emit, stays, dies
):
    """Each has transactions of its own; rows of windows leave the table when they close, if it has every update."""
    table, final = make_topic(2, cleanup_policy="compact"), make_topic(2)
    on_broker = {"bootstrapServers": broker.bootstrap}
    project, file = joining(
        tmp_path,
        QUESTION.format(since="window.start", window="window(e.at, '1 minute')"),
        late=True,
        emit=emit,
        sink={"table": on_broker | {"topic": table}},
        additionalOutputs={"final": {"emit": "OnWindowClose", "sink": {"kafka": on_broker | {"topic": final}}}},
    )
    if dies:
        die_between_sinks(tmp_path, file, int(LAST))
        assert [LAST in batches(broker, topic) for topic in (table, final)] == [True, False]
    result = project.millrace("run", file, "--once")
    assert (result.status, result.err) == (0, ""), result
    step = f"preparing the sink: the rows of topic {table} are read where no local copy has them"
    assert f'step="{step}"' in result.out
    expected = duckdb_rows(project, QUESTION.format(since=MINUTE, window="since"))
    of_table, of_final = (
        Counter(tuple(map(str, row.values())) for row in rows(broker, each)) for each in (table, final)
    )
    assert of_final == expected
    assert LAST in batches(broker, final)
    assert len(committed(broker, final)) == expected.total(), "a final result was written twice"
    assert of_table == (expected if stays else Counter())
    assert any(message.value is None for message in committed(broker, table))
    changes = Counter((message.key, message.headers["millrace-batch"]) for message in committed(broker, table))
    assert max(changes.values()) == 1, "a change was written twice"


def batches(broker, topic):
    """The batches with committed rows in a topic."""
    return {message.headers["millrace-batch"] for message in committed(broker, topic)}
