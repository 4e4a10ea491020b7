"""One-time preparation that speeds up every later run: compiled kernels, and an archive of Spark's classes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.process import jvm

_RECORDS = 5_000


def prepare(report: Callable[[str], None]) -> None:
    """Compile the kernels of all partitioners and archive Spark's classes, unless that was done before.

    Args:
        report: receives each line of progress.

    Raises:
        MillraceError: Java is not installed, a query does not run, or the archive cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix="millrace-prepare-") as name:
        folder = Path(name)
        stream = folder / "in" / "records.csv"
        stream.parent.mkdir()
        stream.write_text(_records(), encoding="utf-8")
        report("compiling the partitioners")
        _compile_kernels()
        classes = jvm.class_archive(jvm.spark_home())
        if classes is None:
            report("this user has no home folder for an archive of Spark's classes: runs start without it")
            return
        if _is_written(classes):
            report(f"Spark's classes are in {classes}")
            return
        report("running small queries to see which classes Spark uses")
        if _write_class_archive(classes, folder):
            report(f"Spark's classes are in {classes} ({classes.stat().st_size >> 20} MiB)")
        else:
            report("this Java writes no archive of classes: runs start without one")


def _records() -> str:
    rows = (f"{_word(i)},{i % 13},2024-05-01T00:{i // 60 % 60:02}:{i % 60:02}Z" for i in range(_RECORDS))
    return "\n".join(["word,number,at", *rows, ""])


def _word(number: int) -> str:
    return f"word-{number * number % 97}"


def _compile_kernels() -> None:
    """Let two replicas of every algorithm do all that replicas do: numba compiles what is called, on its first call."""
    import pyarrow as pa

    from millrace_jobs.partitioners import registry
    from millrace_jobs.partitioners.base import BatchPartitioner
    from millrace_jobs.partitioners.key_hashes import hash_columns

    columns = [pa.array(map(_word, range(_RECORDS))), pa.array(str(i % 13) for i in range(_RECORDS))]
    keys = hash_columns(columns, _RECORDS)
    for algorithm in filter(registry.is_routed, registry.ALGORITHMS):
        setting: dict[str, Any] = {"workers": 4, "replicas": 2, "seed": 0}
        setting["parameters"] = registry.resolve_parameters(algorithm, {})
        replicas = [registry.make(algorithm, replica=replica, **setting) for replica in range(2)]
        for _ in range(2):
            for replica, part in zip(replicas, (keys[::2], keys[1::2]), strict=True):
                if isinstance(replica, BatchPartitioner):
                    replica.accumulate(part)
                    replica.cut()
                else:
                    replica.route(part)
                replica.advance()
            if registry.is_cooperative(algorithm, {}):
                replicas[0].merge(replicas[1:])
            for replica in replicas:
                replica.restore(replica.save())
                replica.resize(6)


def _is_written(classes: Path) -> bool:
    """Return whether the archive exists; if not, create its folder, and ensure that this user can write there."""
    try:
        if classes.exists():
            return True
        classes.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=classes.parent).close()
    except OSError as error:
        message = f"the archive of Spark's classes {classes} cannot be written: {error.strerror}"
        hint = "let this user write there, or set XDG_CACHE_HOME to another folder; queries also run without it"
        raise MillraceError(Problem(message, hint)) from None
    return False


def _write_class_archive(classes: Path, folder: Path) -> bool:
    """Run queries in a JVM that writes the archive when it ends; return whether it did.

    The JVM writes to a temporary name, which is then renamed.
    """
    partial = classes.with_suffix(f".{os.getpid()}")
    process = jvm.start({"spark.driver.extraJavaOptions": f'"-XX:ArchiveClassesAtExit={partial}"'}, quiet=True)
    from millrace_jobs.run.job import Job

    try:
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
            for query in _queries(folder):
                with Job(query, once=True, console=Console(file=nowhere)) as job:
                    job.run()
        if process.finish() or not partial.exists():
            return False
        partial.replace(classes)
        for file in jvm.outdated_archives(classes):
            file.unlink(missing_ok=True)
        return True
    finally:
        process.end()  # a JVM that is still running would write its archive later
        partial.unlink(missing_ok=True)


def _queries(folder: Path) -> Iterator[StreamQuery]:
    """Yield a query for each way in which Spark keeps groups: in its own plan, behind workers, and in Python."""
    sql = "SELECT window.start AS since, word, count(*) AS n FROM s GROUP BY window(at, '1 minute'), word"
    aggregator = {
        "aggregator": "millrace_jobs.aggregates.library:TopK",
        "groupBy": ["word"],
        "window": {"column": "at", "size": "1m"},
        "options": {"type": "BIGINT", "column": "number"},
    }
    yield _query("native", "native", {"sql": sql}, folder)
    yield _query("routed", "pkg", {"sql": sql}, folder)
    yield _query("python", "native", {"python": aggregator}, folder)


def _query(name: str, algorithm: str, question: Mapping[str, Any], folder: Path) -> StreamQuery:
    source = {
        "files": {"path": str(folder / "in"), "format": "csv"},
        "schema": "word STRING, number BIGINT, at TIMESTAMP",
        "watermark": {"column": "at", "delay": "5s"},
    }
    spec = {
        "sources": {"s": source},
        "query": question,
        "sink": {"files": {"path": str(folder / name / "out"), "format": "json"}},
        "partitioner": {"algorithm": algorithm},
        "parallelism": {"initial": 2, "max": 2},
        "checkpoint": {"uri": (folder / name / "checkpoint").as_uri()},
    }
    document = {"apiVersion": "millrace.io/v1alpha1", "kind": "StreamQuery", "metadata": {"name": name}}
    return StreamQuery.model_validate(document | {"spec": spec})
