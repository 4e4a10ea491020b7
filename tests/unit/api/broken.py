"""Documents that break one rule each."""

from __future__ import annotations

from .documents import MINIMAL, PYTHON

KAFKA = "      kafka: {bootstrapServers: kafka:9092, topic: trips"
TABLE = "bootstrapServers: kafka:9092, topic: by-cell"
CODE_IS_ONE = "exactly one of uri, configMap is needed; write where the file is, such as configMap: {name: fares-1, key: fares.py}"
BROKEN = [
    # sources
    (
        MINIMAL,
        7,
        "      timestampFormat: iso",
        "6: spec.sources.trips: exactly one of files, replay, rate, kafka, nexmark, postgres, mysql, delta, iceberg, python is needed; "
        'write one kind, such as files: {path: "data/*.csv"}',
    ),
    (
        MINIMAL,
        7,
        "      files: {path: a, format: csv}\n      kafka: {bootstrapServers: b, topic: c}",
        "8: spec.sources.trips.kafka: exactly one of files, replay, rate, kafka, nexmark, postgres, mysql, delta, iceberg, python is "
        "needed (got files, kafka); "
        'write one kind, such as files: {path: "data/*.csv"}',
    ),
    (
        MINIMAL,
        8,
        "      timestampFormat: iso",
        "6: spec.sources.trips: schema is missing; "
        "write the columns and their types, such as schema: city STRING, fare DOUBLE, at TIMESTAMP",
    ),
    (
        MINIMAL,
        7,
        "      rate: {}",
        "8: spec.sources.trips.schema: schema is fixed for rate, nexmark and format raw "
        "(got schema: cell STRING, fare DOUBLE, at TIMESTAMP); leave schema out",
    ),
    (
        MINIMAL,
        7,
        "      files: {path: a, format: csv}\n      format: json",
        "8: spec.sources.trips.format: format beside the kind is for kafka only (got format: json); "
        "write it inside the kind, such as files: {path: ..., format: csv}, or leave it out",
    ),
    (
        MINIMAL,
        7,
        f"{KAFKA}}}\n      format: avro",
        "8: spec.sources.trips.format: avro and format: avro belong together (got format: avro); write both, or neither",
    ),
    (
        MINIMAL,
        7,
        f"{KAFKA}}}\n      format: debezium",
        "8: spec.sources.trips.format: format debezium is that of a table, whose rows change at the times of their "
        "changes in the database (got format: debezium); write schema, table: {keys: [...]} and watermark: "
        "{column: _changed_at, delay: 0s}",
    ),
    (
        MINIMAL,
        7,
        f"{KAFKA}}}\n      format: debezium\n      table: {{keys: [cell]}}\n      watermark: {{column: at, delay: 0s}}",
        "10: spec.sources.trips.watermark: format debezium is that of a table, whose rows change at the times of their "
        "changes in the database (got format: debezium, table, watermark); write schema, table: {keys: [...]} and "
        "watermark: {column: _changed_at, delay: 0s}",
    ),
    (
        MINIMAL,
        7,
        f"{KAFKA}}}\n      format: debezium\n      table: {{keys: [cell]}}\n"
        "      watermark: {column: _changed_at, delay: 0s}\n      avro: {writerSchema: '{}'}",
        "11: spec.sources.trips.avro: Debezium's messages in Avro name their schema in a registry (got avro); "
        "write avro: {}, and connection: NAME of a Connection with a registry",
    ),
    (
        MINIMAL,
        7,
        f"{KAFKA}}}\n      format: avro\n      avro: {{}}",
        "9: spec.sources.trips.avro: schemas are in a registry unless avro has them, and there is no connection; "
        "write connection: NAME of a Connection that has kafka.registry",
    ),
    (
        MINIMAL,
        7,
        "      files: {path: a, format: csv}\n      corruptRecords: {policy: DeadLetter, topic: bad}",
        "8: spec.sources.trips.corruptRecords: a dead-letter topic needs a kafka source (got corruptRecords); "
        "write corruptRecords.path instead",
    ),
    (
        MINIMAL,
        7,
        "      files: {path: a, format: csv}\n      corruptRecords: {policy: DeadLetter}",
        "8: spec.sources.trips.corruptRecords.policy: policy DeadLetter needs a place for the records "
        "(got policy: DeadLetter); add path: a folder for them (or, for Kafka, topic: a topic)",
    ),
    (
        MINIMAL,
        7,
        "      files: {path: a, format: csv}\n      corruptRecords: {path: out/bad}",
        "8: spec.sources.trips.corruptRecords.path: path and topic are for policy DeadLetter only "
        "(got policy: Fail, path: out/bad); write policy: DeadLetter, or leave them out",
    ),
    (
        MINIMAL,
        7,
        f"{KAFKA}}}\n      corruptRecords: {{policy: DeadLetter, path: out/bad, topic: bad}}",
        "8: spec.sources.trips.corruptRecords.topic: path, topic exclude one another "
        "(got path: out/bad, topic: bad); keep one place for the records",
    ),
    (
        MINIMAL,
        7,
        "      replay: {path: a, format: csv, timeColumn: at, speed: 2.0, rate: 100}",
        "7: spec.sources.trips.replay.rate: speed, rate exclude one another (got speed: 2.0, rate: 100.0); "
        "keep one of them, or none to replay in real time",
    ),
    (
        MINIMAL,
        7,
        "      files: {path: a, format: csv}\n      table: {keys: [cell]}",
        "8: spec.sources.trips.table: a table needs a watermark, whose column is the time from which a record is the row "
        "of its key (got table); add watermark: {column: ..., delay: 0s}",
    ),
    *(
        (
            MINIMAL,
            7,
            f"      {kind}\n      table: {{keys: [cell], static: true}}{more}",
            "8: spec.sources.trips.table: a static table is read from files, a database or a lakehouse, all at once and "
            "without event time "
            "(got table); write files: {path: ...} without maxFilesPerBatch and watermark, or leave static out",
        )
        for kind, more in (
            (f"{KAFKA.lstrip()}}}", ""),
            ("files: {path: a, format: csv, maxFilesPerBatch: 1}", ""),
            ("files: {path: a, format: csv}", "\n      watermark: {column: at, delay: 0s}"),
        )
    ),
    (
        MINIMAL,
        7,
        "      files: {path: a, format: csv}\n      table: {keys: [cell], static: true}",
        "5: spec.sources: every source is a static table, so nothing streams (got sources); "
        "add a source that is a stream, or leave static out of one",
    ),
    (
        PYTHON,
        9,
        "      watermark: {column: at, delay: 30s}\n      table: {keys: [cell]}",
        "11: spec.query: query.python reads a table (got query); leave table out of its source, or write query.sql",
    ),
    # kafka
    (
        MINIMAL,
        7,
        "      kafka: {bootstrapServers: b, topicPattern: 'trips-('}",
        "7: spec.sources.trips.kafka.topicPattern: topicPattern is not a regular expression "
        "(got topicPattern: trips-(); write one that matches whole names, such as trips-.*",
    ),
    (
        MINIMAL,
        7,
        "      kafka: {bootstrapServers: b, partitions: [{topic: t, partition: 0}, {topic: t, partition: 0}]}",
        "7: spec.sources.trips.kafka.partitions: a partition is listed more than once (got partitions); "
        "name each partition once",
    ),
    (
        MINIMAL,
        7,
        f"{KAFKA}}}\n      corruptRecords: {{policy: DeadLetter, topic: trips}}",
        "8: spec.sources.trips.corruptRecords: the dead-letter topic is one that the source reads, "
        "so every dead letter would be read again (got corruptRecords); write another topic",
    ),
    (
        MINIMAL,
        7,
        "      kafka: {bootstrapServers: b, topicPattern: trips-.*}\n"
        "      corruptRecords: {policy: DeadLetter, topic: trips-bad}",
        "8: spec.sources.trips.corruptRecords: the dead-letter topic is one that the source reads, "
        "so every dead letter would be read again (got corruptRecords); write another topic",
    ),
    (
        MINIMAL,
        7,
        f"{KAFKA}, topicPattern: t.*}}",
        "7: spec.sources.trips.kafka.topicPattern: exactly one of topic, topics, topicPattern, partitions is needed "
        "(got topic: trips, topicPattern: t.*); write one, such as topic: trips",
    ),
    (
        MINIMAL,
        7,
        f'{KAFKA}, startingOffsets: Latest, startingTimestamp: "2026-01-31T12:00:00Z"}}',
        "7: spec.sources.trips.kafka.startingTimestamp: startingOffsets, startingTimestamp exclude one another "
        "(got startingOffsets: Latest, startingTimestamp: 2026-01-31T12:00:00Z); keep the one to start from",
    ),
    (
        MINIMAL,
        7,
        f"{KAFKA}, endingOffsets: Latest, endingTimestamp: 2026-01-31T12:00:00Z}}",
        "7: spec.sources.trips.kafka.endingTimestamp: endingOffsets, endingTimestamp exclude one another "
        "(got endingOffsets: Latest, endingTimestamp: 2026-01-31T12:00:00Z); keep the one to stop at",
    ),
    (
        MINIMAL,
        7,
        "      kafka: {bootstrapServers: b, partitions: [{topic: t, partition: 0, startingOffset: 9, endingOffset: 3}]}",
        "7: spec.sources.trips.kafka.partitions[0].endingOffset: startingOffset <= endingOffset does not hold "
        "(got startingOffset: 9, endingOffset: 3); write values in that order",
    ),
    # query and sink
    (
        MINIMAL,
        10,
        "    {}",
        "9: spec.query: exactly one of sql, python is needed; "
        "write sql: SELECT ... FROM a source, or python: {aggregator: ...}",
    ),
    (
        MINIMAL,
        11,
        "  sink: {console: {}, files: {path: out}}",
        "11: spec.sink.console: exactly one of files, console, kafka, table, postgres, mysql, delta, iceberg, python is needed (got files, console); "
        "write one kind, such as console: {}",
    ),
    (
        PYTHON,
        14,
        "      window: {column: at, size: 1m, slide: 10m}",
        "14: spec.query.python.window.slide: slide is longer than size (got size: 1m, slide: 10m); "
        "write a slide of at most the size, or leave it out for a tumbling window",
    ),
    (
        PYTHON,
        13,
        "      source: rides",
        "10: spec.query: query.python.source is not one of the sources (got query); "
        "write the name of one of spec.sources; it may be left out only if there is just one",
    ),
    (
        PYTHON,
        14,
        "      options: {k: 10}",
        "16: spec.emit: emit OnWindowClose needs a window and a watermark (got emit: OnWindowClose); "
        "add query.python.window and the source's watermark, or write emit: OnUpdate",
    ),
    (
        PYTHON,
        9,
        "      timestampFormat: iso",
        "16: spec.emit: emit OnWindowClose needs a window and a watermark (got emit: OnWindowClose); "
        "add query.python.window and the source's watermark, or write emit: OnUpdate",
    ),
    (
        MINIMAL,
        12,
        "  emit: OnWindowEnd",
        "12: spec.emit: emit OnWindowEnd needs query.sql and a watermark (got emit: OnWindowEnd); "
        "add the source's watermark; for a Python aggregator, write emit: OnUpdate or OnWindowClose",
    ),
    (
        PYTHON,
        16,
        "  emit: OnWindowEnd",
        "16: spec.emit: emit OnWindowEnd needs query.sql and a watermark (got emit: OnWindowEnd); "
        "add the source's watermark; for a Python aggregator, write emit: OnUpdate or OnWindowClose",
    ),
    (
        MINIMAL,
        12,
        "  additionalOutputs: {final: {emit: OnWindowClose, sink: {files: {path: out}}}}",
        "12: spec.additionalOutputs: additionalOutputs need query.sql and a watermark (got additionalOutputs); "
        "add the source's watermark, or leave additionalOutputs out; a Python aggregator has one output",
    ),
    (
        MINIMAL,
        11,
        f"  sink: {{table: {{{TABLE}, history: {{topic: by-cell, retention: 1h}}}}}}",
        "11: spec.sink.table.history: the history is in the table's own topic (got topic: by-cell, history); "
        "give it a topic of its own",
    ),
    (
        MINIMAL,
        11,
        f"  sink: {{table: {{{TABLE}, history: {{topic: old, retention: 1h}}}}}}",
        "11: spec.sink: sink.table.history needs query.sql, a watermark, emit OnUpdate and no additionalOutputs "
        "(got sink); add what is missing, or leave history out",
    ),
    (
        MINIMAL,
        11,
        "  sink: {files: {path: out, key: [cell]}}",
        "11: spec.sink: a changelog in files needs query.sql and a watermark (got sink); "
        "add the source's watermark, or leave key out",
    ),
    (
        PYTHON,
        15,
        f"  sink: {{table: {{{TABLE}, history: {{topic: old, retention: 1h}}}}}}",
        "15: spec.sink: sink.table.history needs query.sql, a watermark, emit OnUpdate and no additionalOutputs "
        "(got sink); add what is missing, or leave history out",
    ),
    (
        MINIMAL,
        12,
        "  lookups: {tokens: {env: TOKENS}}",
        "12: spec.lookups: lookups are in the table of spec.sink (got lookups); write sink.table, or leave lookups out",
    ),
    (
        MINIMAL,
        12,
        '  lookups: {tokens: {env: TOKENS}, namespaces: [web, "*"]}',
        '12: spec.lookups.namespaces: look-ups from everywhere ("*") need tls, or tokens pass the network unencrypted '
        "(got namespaces); add tls, or write the names of namespaces",
    ),
    # how it runs
    (
        MINIMAL,
        12,
        "  parallelism: {min: 4, initial: 2}",
        "12: spec.parallelism.initial: min <= initial <= max does not hold (got min: 4, initial: 2, max: 16); "
        "write values in that order",
    ),
    (
        MINIMAL,
        12,
        "  executors: {min: 4, initial: 4, max: 3}",
        "12: spec.executors.max: min <= initial <= max does not hold (got min: 4, initial: 4, max: 3); "
        "write values in that order",
    ),
    (
        MINIMAL,
        12,
        "  partitioner:\n    replicas:\n      max: 2\n      min: 3",
        "14: spec.partitioner.replicas.max: min <= initial <= max does not hold (got min: 3, max: 2); "
        "write values in that order",
    ),
    (
        MINIMAL,
        12,
        "  partitioner: {placement: Dedicated}",
        "12: spec.partitioner: placement Dedicated needs kafka sources (got partitioner); "
        "write partitioner.placement: Inline, or read from kafka",
    ),
    (
        MINIMAL,
        12,
        "  scaling: {target: 0.5, step: 0.5}",
        "12: spec.scaling.step: step is not less than target (got target: 0.5, step: 0.5); "
        "write a smaller step, such as target: 0.9 and step: 0.1",
    ),
    (
        MINIMAL,
        12,
        "  checkpoint: {}",
        "12: spec.checkpoint: exactly one of uri, claimName is needed; "
        "write uri: file:///var/lib/millrace, or claimName: the name of a PersistentVolumeClaim",
    ),
    (
        MINIMAL,
        12,
        "  partitioner: {algorithm: python, parameters: {limit: 3}}",
        '12: spec.partitioner.algorithm: algorithm python needs the class that places records (got algorithm: python); write parameters: {class: "module:Class"}, such as "mypackage.placing:Sticky"',
    ),
    (
        MINIMAL,
        12,
        '  partitioner: {algorithm: python, placement: Auto, parameters: {class: "a:B"}}',
        "12: spec.partitioner.placement: algorithm python runs in the job's own tasks (got placement: Auto); write placement: Inline, or leave it out",
    ),
    (
        MINIMAL,
        12,
        f"  code: [{{sha256: {'a' * 64}}}]",
        f"12: spec.code[0]: {CODE_IS_ONE}",
    ),
    (
        MINIMAL,
        12,
        f"  code: [{{uri: s3a://code/fares.py, configMap: {{name: fares, key: fares.py}}, sha256: {'a' * 64}}}]",
        f"12: spec.code[0].configMap: {CODE_IS_ONE.replace('; ', ' (got uri: s3a://code/fares.py, configMap); ')}",
    ),
    (
        PYTHON,
        11,
        '    functions: {near: {python: "geo:near", returns: INT}}\n    python:',
        "11: spec.query.functions: functions are for SQL (got functions); leave functions out, or write sql",
    ),
    (
        PYTHON,
        11,
        '    aggregates: {top: {python: "routes:Top"}}\n    python:',
        "11: spec.query.aggregates: aggregates are for SQL (got aggregates); leave aggregates out, or write sql",
    ),
    (
        MINIMAL,
        10,
        "    aggregates: {top: {options: {k: 3}}}\n    sql: SELECT top(fare) FROM trips",
        "10: spec.query.aggregates.top: exactly one of python, builtin is needed; "
        'write python: "module:Name", or builtin: TopK, Quantiles, Histogram or Latest',
    ),
    (
        MINIMAL,
        10,
        '    functions: {top: {python: "geo:top", returns: INT}}\n    aggregates: {top: {builtin: TopK}}\n'
        "    sql: SELECT top(fare) FROM trips",
        "11: spec.query.aggregates: a name is that of a function and of an aggregate (got functions, aggregates); "
        "give one of them another name",
    ),
    (
        MINIMAL,
        12,
        "  upgrade: {mode: Shadow, duration: 25h}",
        "12: spec.upgrade.duration: duration is longer than a day (got duration: 25h); write at most 24h",
    ),
]
