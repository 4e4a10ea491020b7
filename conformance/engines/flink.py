"""Flink SQL in a local cluster: streams with watermarks, tables as upserts by key (as of ``upsert-kafka``)."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.processes import compile_java, fetched_jars
from conformance.cases import Case, Outcome, Query

from .versions import version_of

_JAVA = Path(__file__).parents[1] / "java"
_PROGRAM = "FlinkRunner"
_OPENS = ["--add-opens=java.base/java.util=ALL-UNNAMED", "--add-opens=java.base/java.lang=ALL-UNNAMED"]


class FlinkRunner:
    """Flink in one JVM for all cases."""

    name = "flink"
    version = version_of("flink")

    def outcomes(self, work: Sequence[tuple[Query, Case]]) -> Iterator[tuple[str, Outcome]]:
        """Yield the id and the outcome of each case. Flink does not say at which event time a table changes."""
        jars = fetched_jars("jars of Flink SQL", "conformance-flink", _JAVA / "flink.pom.xml")
        with tempfile.TemporaryDirectory(prefix="conformance-") as name:
            folder = Path(name)
            compile_java(_JAVA / f"{_PROGRAM}.java", jars, folder)
            (folder / "cases.json").write_text(json.dumps([_document(*each) for each in work]), encoding="utf-8")
            command: list[str | Path] = ["java", "-Xmx1g", f"-Djava.io.tmpdir={folder}", *_OPENS]
            command += ["-cp", f"{jars}/*:{folder}", _PROGRAM, folder / "cases.json"]
            with (folder / "log").open("w+", encoding="utf-8") as log:
                with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process:
                    assert process.stdout is not None
                    for line in process.stdout:
                        found = json.loads(line)
                        yield found["id"], Outcome(found.get("rows", ()), error=found.get("error"))
                if process.returncode:
                    log.seek(0)
                    raise RuntimeError(f"Flink's runner fails with status {process.returncode}: {log.read()[-2000:]}")


def _document(query: Query, case: Case) -> dict[str, Any]:
    keys: set[tuple[str, str]] = set()
    arrivals = []
    for each in case.arrivals:
        name = (each.to, each.k)
        arrivals.append(each.written() | {"update": query.inputs[each.to] == "table" and name in keys})
        (keys.discard if each.delete else keys.add)(name)
    inputs = [{"name": name, "kind": kind} for name, kind in query.inputs.items()]
    sql = query.engines["flink"]["sql"]
    return {"id": case.id, "sql": sql, "grace": query.grace, "inputs": inputs, "arrivals": arrivals}
