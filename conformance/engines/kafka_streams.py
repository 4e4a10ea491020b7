"""Kafka Streams: the topologies of the queries, with versioned stores and a grace, in its own test driver.

The driver is the one of the project itself (``kafka-streams-test-utils``): it runs real topologies with real stores,
and takes records one by one, so that the order of arrival is that of the case.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.processes import compile_java, fetched_jars
from conformance.cases import Case, Change, Outcome, Query, version

from .common import LAST, last_rounds, own_rows
from .versions import version_of

_JAVA = Path(__file__).parents[1] / "java"
_PROGRAM = "KafkaStreamsRunner"


class KafkaStreamsRunner:
    """Kafka Streams in one JVM for all cases."""

    name = "kafkaStreams"
    version = version_of("kafkaStreams")

    def outcomes(self, work: Sequence[tuple[Query, Case]]) -> Iterator[tuple[str, Outcome]]:
        """Yield the id and the outcome of each case."""
        jars = fetched_jars("jars of Kafka Streams", "conformance-kafka-streams", _JAVA / "streams.pom.xml")
        queries = {query.name: query for query, _ in work}
        with tempfile.TemporaryDirectory(prefix="conformance-") as name:
            folder = Path(name)
            template = (_JAVA / f"{_PROGRAM}.java").read_text(encoding="utf-8")
            program = folder / f"{_PROGRAM}.java"
            methods = "\n".join(_topology(query) for query in queries.values())
            program.write_text(template.replace("  // TOPOLOGIES\n", methods), encoding="utf-8")
            compile_java(program, jars, folder)
            (folder / "cases.json").write_text(json.dumps([_document(*each) for each in work]), encoding="utf-8")
            command: list[str | Path] = ["java", "-Xmx512m", "-cp", f"{jars}/*:{folder}"]
            command += [_PROGRAM, folder / "cases.json", folder]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        found = {each["id"]: each for each in map(json.loads, done.stdout.splitlines())}
        for query, case in work:
            yield case.id, _outcome(query, found[case.id])


def _topology(query: Query) -> str:
    java = textwrap.indent(query.engines["kafkaStreams"]["java"], "    ")
    return f"\n  private void {_method(query)}() {{\n{java}  }}\n"


def _method(query: Query) -> str:
    return "query_" + query.name.replace("-", "_")


def _document(query: Query, case: Case) -> dict[str, Any]:
    rounds = [*case.rounds, *last_rounds(query)]
    arrivals = [each.written() for arrivals in rounds for each in arrivals]
    return {"id": case.id, "method": _method(query), "inputs": list(query.inputs), "arrivals": arrivals}


def _outcome(query: Query, document: dict[str, Any]) -> Outcome:
    if "error" in document:
        return Outcome(error=document["error"])
    messages = document["messages"]
    if query.result == "stream":
        return Outcome(own_rows(each["row"] for each in messages))
    changelog: list[Change] = [
        (each["at"], {"key": each["key"]}, each["row"])
        for each in messages
        if each["row"] is None or own_rows([each["row"]])
    ]
    return Outcome(version(changelog, LAST), changelog)
