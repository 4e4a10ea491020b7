"""Documents that the API server refuses by their schema, each with a part of the error message."""

from __future__ import annotations

from typing import NamedTuple

from unit.api.documents import MINIMAL, PYTHON


class Invalid(NamedTuple):
    """A document with one line replaced, and a part of the error message."""

    text: str
    line: int
    replacement: str
    said: str


KAFKA = "      kafka: {bootstrapServers: b, topic: t"

INVALID = (
    Invalid(MINIMAL, 3, "metadata: {name: Trips}", 'Invalid value: "Trips"'),
    Invalid(MINIMAL, 3, f"metadata: {{name: {'a' * 64}}}", "metadata.name"),
    Invalid(MINIMAL, 11, "", "spec.sink: Required value"),
    Invalid(MINIMAL, 5, "  source:", 'unknown field "spec.source"'),
    Invalid(MINIMAL, 7, "      files: []", "spec.sources.trips.files: Invalid value"),
    Invalid(MINIMAL, 6, "    Trips:", "a source's name is a table's name in the SQL"),
    Invalid(MINIMAL, 6, "    2trips:", "a source's name is a table's name in the SQL"),
    Invalid(
        MINIMAL,
        10,
        '    functions: {Near: {python: "geo:near", returns: INT}}\n    sql: SELECT cell FROM trips',
        "a function's name is what the SQL calls it by",
    ),
    Invalid(
        MINIMAL,
        10,
        '    functions: {near: {python: "geo.near", returns: INT}}\n    sql: SELECT cell FROM trips',
        "functions.near.python in body should match",
    ),
    Invalid(MINIMAL, 7, "      python: {read: shop.Orders}", "python.read in body should match"),
    Invalid(MINIMAL, 11, "  sink: {python: {write: alerts.write}}", "sink.python.write in body should match"),
    Invalid(
        MINIMAL,
        10,
        '    aggregates: {Top: {python: "routes:Top"}}\n    sql: SELECT Top(fare) FROM trips',
        "an aggregate's name is what the SQL calls it by",
    ),
    Invalid(
        MINIMAL,
        10,
        '    aggregates: {top: {python: "routes.Top"}}\n    sql: SELECT top(fare) FROM trips',
        "aggregates.top.python in body should match",
    ),
    Invalid(
        MINIMAL,
        10,
        "    aggregates: {top: {builtin: Top}}\n    sql: SELECT top(fare) FROM trips",
        'aggregates.top.builtin: Unsupported value: "Top"',
    ),
    Invalid(
        MINIMAL,
        12,
        "  additionalOutputs: {Final: {emit: OnUpdate, sink: {files: {path: out, format: csv}}}}",
        "an output's name is part of the names of what it writes",
    ),
    Invalid(
        MINIMAL, 12, "  additionalOutputs: {final: {emit: OnUpdate}}", "additionalOutputs.final.sink: Required value"
    ),
    Invalid(MINIMAL, 12, "  additionalOutputs: {}", "spec.additionalOutputs: Invalid value"),
    Invalid(MINIMAL, 12, "  lookups: {}", "spec.lookups.tokens: Required value"),
    Invalid(MINIMAL, 12, "  lookups: {tokens: {env: A}, tls: {certificate: {env: B}}}", "lookups.tls.key: Required"),
    Invalid(MINIMAL, 12, "  lookups: {tokens: {env: A}, namespaces: [Web]}", "spec.lookups.namespaces"),
    Invalid(MINIMAL, 12, "  lookups: {tokens: {env: A}, namespaces: [web-]}", "spec.lookups.namespaces"),
    Invalid(MINIMAL, 7, "      files: {path: data/*.csv}", "spec.sources.trips.files.format: Required value"),
    Invalid(MINIMAL, 7, "      files: {path: '', format: csv}", "spec.sources.trips.files.path"),
    Invalid(MINIMAL, 7, "      files: {path: a, format: orc}", 'Unsupported value: "orc"'),
    Invalid(MINIMAL, 7, "      files: {path: a, format: csv, maxFilesPerBatch: 0}", "files.maxFilesPerBatch"),
    Invalid(MINIMAL, 7, "      files: {path: a, format: csv, header: yep}", "files.header: Invalid value"),
    Invalid(
        MINIMAL, 7, "      files: {path: a, format: csv}\n      watermark: {delay: 3s}", "watermark.column: Required"
    ),
    Invalid(
        MINIMAL, 7, "      files: {path: a, format: csv}\n      watermark: {column: at, delay: soon}", "watermark.delay"
    ),
    Invalid(
        MINIMAL,
        7,
        "      files: {path: a, format: csv}\n      corruptRecords: {policy: skip}",
        'Unsupported value: "skip"',
    ),
    Invalid(MINIMAL, 7, "      kafka: {topic: t}", "the address of the brokers is missing"),
    Invalid(MINIMAL, 7, f"{KAFKA}, tls: {{}}}}", 'unknown field "spec.sources.trips.kafka.tls"'),
    Invalid(MINIMAL, 7, f"{KAFKA}, connection: a}}", "a connection has its own bootstrapServers"),
    Invalid(MINIMAL, 7, "      kafka: {topic: t, connection: A}", "kafka.connection: Invalid value"),
    Invalid(MINIMAL, 7, f"{KAFKA}, startingOffsets: newest}}", 'Unsupported value: "newest"'),
    Invalid(MINIMAL, 7, f"{KAFKA}, maxRecordsPerBatch: -1}}", "kafka.maxRecordsPerBatch"),
    Invalid(MINIMAL, 7, f"{KAFKA}, options: {{linger.ms: 5}}}}", 'unknown field "spec.sources.trips.kafka.options"'),
    Invalid(MINIMAL, 7, f"{KAFKA}, password: hunter2}}", 'unknown field "spec.sources.trips.kafka.password"'),
    Invalid(MINIMAL, 7, "      rate: {recordsPerSecond: 0}", "rate.recordsPerSecond"),
    Invalid(MINIMAL, 10, "    sql: ''", "spec.query.sql"),
    Invalid(MINIMAL, 10, "    sql: 7", "spec.query.sql: Invalid value"),
    Invalid(MINIMAL, 11, "  sink: {files: {}}", "spec.sink.files.path: Required value"),
    Invalid(MINIMAL, 11, "  sink: {console: {rows: 0}}", "spec.sink.console.rows"),
    Invalid(MINIMAL, 11, "  sink: {kafka: {bootstrapServers: b, topic: 'a b'}}", "spec.sink.kafka.topic"),
    Invalid(MINIMAL, 11, "  sink: {nowhere: {}}", 'unknown field "spec.sink.nowhere"'),
    Invalid(MINIMAL, 12, "  suspend: Paused", "spec.suspend: Invalid value"),
    Invalid(MINIMAL, 7, "      kafka: {topic: t, endingOffsets: Earliest}", 'Unsupported value: "Earliest"'),
    Invalid(MINIMAL, 12, "  emit: Always", 'Unsupported value: "Always"'),
    Invalid(MINIMAL, 12, "  batchInterval: 0s", "spec.batchInterval"),
    Invalid(MINIMAL, 12, "  batchInterval: 2", "spec.batchInterval: Invalid value"),
    Invalid(MINIMAL, 12, "  partitioner: {algorithm: best}", 'Unsupported value: "best"'),
    Invalid(MINIMAL, 12, "  partitioner: {placement: Outside}", 'Unsupported value: "Outside"'),
    Invalid(MINIMAL, 12, "  parallelism: {max: 0}", "spec.parallelism.max"),
    Invalid(MINIMAL, 12, "  executors: {min: -1}", "spec.executors.min"),
    Invalid(MINIMAL, 12, "  executors: {min: 0, initial: 0}", "spec.executors.initial"),
    Invalid(MINIMAL, 12, "  executors: {min: 0, max: 0}", "spec.executors.max"),
    Invalid(MINIMAL, 12, "  executors: {memory: 2GB}", "spec.executors.memory"),
    Invalid(MINIMAL, 12, "  executors: {memory: 2g, maxMemory: 2047Mi}", "memory <= maxMemory does not hold"),
    Invalid(MINIMAL, 12, "  driver: {maxMemory: 512m}", "memory <= maxMemory does not hold"),
    Invalid(MINIMAL, 12, "  driver: {maxMemory: 2}", "spec.driver.maxMemory"),
    Invalid(MINIMAL, 12, "  partitioner: {pod: {maxMemory: 2g}}", 'unknown field "spec.partitioner.pod.maxMemory"'),
    Invalid(MINIMAL, 12, "  executors: {cores: 1.5}", "spec.executors.cores"),
    Invalid(MINIMAL, 12, "  executors: {cores: 0}", "spec.executors.cores"),
    Invalid(MINIMAL, 12, "  executors: {cores: 0m}", "spec.executors.cores"),
    Invalid(MINIMAL, 12, "  driver: {cores: none}", "spec.driver.cores"),
    Invalid(MINIMAL, 12, "  scaling: {mode: Auto}", 'Unsupported value: "Auto"'),
    Invalid(MINIMAL, 12, "  scaling: {target: 0}", "spec.scaling.target"),
    Invalid(MINIMAL, 12, "  scaling: {grace: -1}", "spec.scaling.grace"),
    Invalid(
        MINIMAL,
        12,
        "  scaling: {schedule: [{start: '0 8 * * *', duration: 1h, minExecutors: 9}]}",
        "a minimum of scaling.schedule is more than executors.max",
    ),
    Invalid(
        MINIMAL,
        12,
        "  scaling: {schedule: [{start: '0 8 * *', duration: 1h, minExecutors: 2}]}",
        "spec.scaling.schedule[0].start",
    ),
    Invalid(MINIMAL, 12, "  checkpoint: {uri: out}", "spec.checkpoint.uri"),
    Invalid(MINIMAL, 12, "  sparkConf: {spark.ui.enabled: true}", "spec.sparkConf"),
    Invalid(MINIMAL, 12, "  labels: {-team: a}", "a label has a key that Kubernetes does not take"),
    Invalid(MINIMAL, 12, "  labels: {a/b/team: a}", "a label has a key that Kubernetes does not take"),
    Invalid(MINIMAL, 12, "  labels: {a..b/team: a}", "a label has a key that Kubernetes does not take"),
    Invalid(MINIMAL, 12, f"  labels: {{{'a' * 254}/team: a}}", "a label has a key that Kubernetes does not take"),
    Invalid(MINIMAL, 12, "  labels: {team: a b}", "spec.labels.team: Invalid value"),
    Invalid(MINIMAL, 12, f"  code: [{{uri: 'routes.whl', sha256: {'0' * 64}}}]", "spec.code[0].uri: Invalid value"),
    Invalid(MINIMAL, 12, "  code: [{uri: s3a://code/routes.whl, sha256: '12'}]", "spec.code[0].sha256: Invalid value"),
    Invalid(MINIMAL, 12, "  code: [{uri: s3a://code/routes.whl}]", "spec.code[0].sha256: Required value"),
    Invalid(
        MINIMAL,
        12,
        f"  code: [{{configMap: {{name: a, key: my-fares.py}}, sha256: {'a' * 64}}}]",
        "spec.code[0].configMap.key: Invalid value",
    ),
    Invalid(
        MINIMAL,
        12,
        f"  code: [{{configMap: {{name: ../a, key: fares.py}}, sha256: {'a' * 64}}}]",
        "spec.code[0].configMap.name: Invalid value",
    ),
    Invalid(MINIMAL, 12, "  eventLog: {}", "spec.eventLog.path: Required value"),
    Invalid(MINIMAL, 12, "  lineage: {}", "exactly one of http, file is needed"),
    Invalid(MINIMAL, 12, "  lineage: {http: {url: 'marquez:5000'}}", "spec.lineage.http.url: Invalid value"),
    Invalid(MINIMAL, 12, "  restartNonce: again", "spec.restartNonce"),
    Invalid(PYTHON, 12, "      aggregator: routes", "spec.query.python.aggregator"),
    Invalid(PYTHON, 14, "      window: {size: 10m}", "spec.query.python.window.column: Required value"),
)
