"""What the planner refuses of a query over streams and tables, as ``millrace validate`` says it."""

from millrace_api.model.streamquery import StreamQuery
from millrace_api.validation.checking import check_query
from millrace_jobs.run.query_file import execution_problems

KAFKA = {"bootstrapServers": "127.0.0.1:1"}
TABLE_SINK = {"table": {**KAFKA, "topic": "out"}}


NEAR = "FROM s JOIN r ON s.k = r.k AND r.at BETWEEN s.at AND s.at + INTERVAL 5 SECONDS"


def source(name, **more):
    watermark = {"column": "at", "delay": "10s"}
    return {
        "kafka": {**KAFKA, "topic": name},
        "schema": "at TIMESTAMP, k STRING, n INT",
        "watermark": watermark,
        **more,
    }


def problems(sql, sink=TABLE_SINK, **more):
    table = {"keys": ["k"]}
    sources = {"s": source("s"), "p": source("p", table=table), "q": source("q", table=table)}
    document = {
        "apiVersion": "millrace.io/v1alpha1",
        "kind": "StreamQuery",
        "metadata": {"name": "x"},
        "spec": {"sources": sources, "query": {"sql": sql}, "sink": sink, **more},
    }
    query = StreamQuery.model_validate(document, by_name=False)
    found = check_query(query)
    if more.get("additionalOutputs"):
        return [str(problem) for problem in found or execution_problems(query)]
    assert found == []
    return [str(problem) for problem in execution_problems(query)]
