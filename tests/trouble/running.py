"""One run of a case by one plan, in this process: many runs share the JVM and its session."""

from __future__ import annotations

import io
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from millrace_api.errors import MillraceError
from millrace_api.model.streamquery import StreamQuery
from millrace_api.validation.loading import load_queries
from millrace_jobs.run.job import Job
from millrace_jobs.run.query_file import check_file
from millrace_jobs.session import local_session

_WORKSPACE: list[Path] = []
_SET: set[str] = set()
"""Spark settings of the last query, which the shared session would keep for the next one."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended: finished, refused with a sentence, or crashed with a traceback; ``said`` is what it printed."""

    how: str
    message: str = ""
    said: str = ""

    @property
    def is_clear(self) -> bool:
        """Whether a refusal is one that a user can act on."""
        unclear = ("Traceback", "this should not have happened", "--debug", "Py4J", "SQLSTATE", "java.", "org.apache")
        return self.how == "refused" and not any(word in self.message for word in unclear)


class _SharedSpark(Job):
    """A job whose Spark goes on after it, for the next one."""

    def _session(self, partitions: int, query: StreamQuery) -> SparkSession:
        if not _WORKSPACE:
            _WORKSPACE.append(Path(tempfile.mkdtemp(prefix="trouble-spark-")))
        settings = {"spark.master": "local[2, 1]", **query.spec.spark_conf}
        spark = local_session("trouble", partitions, settings, _WORKSPACE[0], quiet=True)
        for name in _SET - self.query.spec.spark_conf.keys():
            spark.conf.unset(name)
        _SET.clear()
        _SET.update(name for name in self.query.spec.spark_conf if spark.conf.isModifiable(name))
        for name in self.query.spec.sources:
            spark.catalog.dropTempView(name)
        return spark


def run_once(file: Path, *, leaves_open: bool = False) -> Outcome:
    """Run the query in a file as ``millrace run --once`` does, or as ``--available-now``, which leaves windows open."""
    said = io.StringIO()
    console = Console(file=said, width=10_000)
    how, message = "finished", ""
    try:
        (query,) = load_queries(file)
        with _SharedSpark(
            query, once=True, file=file, console=console, results=console, leaves_open=leaves_open
        ) as job:
            job.run()
    except MillraceError as error:
        how, message = "refused", str(error)
    except Exception:
        how, message = "crashed", traceback.format_exc()
    return Outcome(how, message, said.getvalue())


def explained(file: Path) -> Outcome:
    """Explain the query in a file."""
    try:
        (query,) = load_queries(file)
        with _SharedSpark(query, file=file) as job:
            return Outcome("finished", job.explain())
    except MillraceError as error:
        return Outcome("refused", str(error))
    except Exception:
        return Outcome("crashed", traceback.format_exc())


def validated(file: Path) -> Outcome:
    """Check the file as ``millrace validate`` does."""
    try:
        problems = check_file(file)
    except Exception:
        return Outcome("crashed", traceback.format_exc())
    return Outcome("refused", "\n".join(map(str, problems))) if problems else Outcome("finished")
