"""Random documents of queries, for property tests."""

from hypothesis import strategies as st

from millrace_api.model.deployment import Algorithm
from millrace_api.model.scheduling import BatchScheduler
from millrace_api.validation.places import path_problem

names = st.from_regex(r"[a-z][a-z0-9]{0,10}", fullmatch=True)
texts = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")), min_size=1, max_size=20)
paths = texts.filter(lambda path: path_problem(path) is None)
counts = st.integers(1, 1000)
durations = st.builds("{}{}".format, st.integers(1, 999), st.sampled_from(["ms", "s", "m", "h", "h30m", "d"]))
sizes = st.builds("{}{}".format, counts, st.sampled_from(("k", "m", "g", "t", "Mi", "Gi")))
positives = st.floats(0.001, 1e9)
scalars = st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e9, 1e9) | texts
secrets = st.fixed_dictionaries({"env": names}) | st.fixed_dictionaries(
    {"secretKeyRef": st.fixed_dictionaries({"name": names, "key": names})}
)
ranges = (
    st.lists(counts, min_size=3, max_size=3)
    .map(sorted)
    .map(lambda v: dict(zip(("min", "initial", "max"), v, strict=True)))
)

file_options = {"header": st.booleans(), "delimiter": st.sampled_from([",", "|", "\t", '"', "é"])}
files = st.fixed_dictionaries(
    {"path": paths, "format": st.sampled_from(["csv", "json", "parquet"])},
    optional={**file_options, "maxFilesPerBatch": counts},
)
replays = st.fixed_dictionaries(
    {"path": paths, "format": st.sampled_from(["csv", "json", "parquet"]), "timeColumn": st.just("at")},
    optional=file_options,
).flatmap(
    lambda replay: (
        st.just(replay)
        | positives.map(lambda speed: {**replay, "speed": speed})
        | positives.map(lambda rate: {**replay, "rate": rate})
    )
)
kafkas = st.fixed_dictionaries(
    {"bootstrapServers": names, "topic": names},
    optional={
        "startingOffsets": st.sampled_from(["Earliest", "Latest"]),
        "tls": st.fixed_dictionaries({}, optional={"ca": secrets}),
        "sasl": st.fixed_dictionaries({"mechanism": st.just("PLAIN"), "username": secrets, "password": secrets}),
        "includeMetadata": st.booleans(),
        "maxBytesPerBatch": sizes,
    },
)
cores = st.integers(1, 64) | st.integers(1, 64_000).map(lambda milli: f"{milli}m")
beside = {
    "watermark": st.fixed_dictionaries({"column": st.just("at"), "delay": durations}),
    "timestampFormat": st.sampled_from(["iso", "seconds", "milliseconds", "microseconds"]),
    "corruptRecords": st.sampled_from([{"policy": "Drop"}, {"policy": "DeadLetter", "path": "out/bad"}]),
}
schema = st.just("cell STRING, fare DECIMAL(10,2), at TIMESTAMP")
sources = (
    st.fixed_dictionaries({"files": files, "schema": schema}, optional=beside)
    | st.fixed_dictionaries({"replay": replays, "schema": schema}, optional=beside)
    | st.fixed_dictionaries({"kafka": kafkas, "schema": schema}, optional=beside)
)
queries = st.just({"sql": "SELECT cell, count(*) AS n\nFROM one\nGROUP BY cell\n"}) | st.fixed_dictionaries(
    {
        "python": st.fixed_dictionaries(
            {"aggregator": st.just("a.b:C"), "source": st.just("one")},
            optional={
                "groupBy": st.just(["cell"]),
                "window": st.fixed_dictionaries({"column": st.just("at"), "size": durations}),
                "options": st.dictionaries(texts, st.none() | scalars | st.lists(scalars), max_size=3),
            },
        )
    }
)
sinks = st.sampled_from(
    [
        {"console": {}},
        {"console": {"rows": 5}},
        {"files": {"path": "out", "format": "json"}},
        {"kafka": {"bootstrapServers": "k:9092", "topic": "t", "key": ["cell"]}},
        {"table": {"bootstrapServers": "k:9092", "topic": "t"}},
    ]
)


def _with_class(partitioner):
    """Name the class that ``algorithm: python`` needs."""
    if partitioner.get("algorithm") != Algorithm.PYTHON:
        return partitioner
    return partitioner | {"parameters": {**partitioner.get("parameters", {}), "class": "placing:Sticky"}}


specs = st.fixed_dictionaries(
    {
        "sources": sources.map(lambda one: {"one": one, "two": {"rate": {"skew": 1.5}}}),
        "query": queries,
        "sink": sinks,
    },
    optional={
        "suspend": st.booleans(),
        "batchInterval": durations,
        "partitioner": st.fixed_dictionaries(
            {},
            optional={
                "algorithm": st.sampled_from([algorithm.value for algorithm in Algorithm]),
                "parameters": st.dictionaries(texts, scalars, max_size=3),
                "replicas": ranges,
                "pod": st.builds(lambda memory, cores: {"memory": memory, "cores": cores}, sizes, cores),
            },
        ).map(_with_class),
        "parallelism": ranges,
        "executors": st.builds(lambda r, memory: {**r, "memory": memory}, ranges, sizes),
        "scaling": st.just({"mode": "Advise", "target": 0.8}),
        "checkpoint": st.sampled_from([{"uri": "file:///var/lib/x%20y"}, {"claimName": "state"}]),
        "sparkConf": st.dictionaries(texts, texts, max_size=2),
        "scheduling": st.builds(
            lambda scheduler, queue: {"scheduler": scheduler.value, "queue": queue},
            st.sampled_from(BatchScheduler),
            st.sampled_from(["team-a", "root.team_a"]),
        ),
        "restartNonce": st.integers(0, 2**53),
    },
)
documents = st.builds(
    lambda name, spec: {
        "apiVersion": "millrace.io/v1alpha1",
        "kind": "StreamQuery",
        "metadata": {"name": name},
        "spec": spec,
    },
    names,
    specs,
)
