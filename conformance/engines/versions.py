"""The versions of the engines that the suite runs, which are part of what a result is about."""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import version
from pathlib import Path

_JAVA = Path(__file__).parents[1] / "java"


@cache
def version_of(engine: str) -> str:
    """Return the name and the version of an engine: that in its pom, or that of the installed package."""
    match engine:
        case "kafkaStreams":
            return f"Kafka Streams {_in_pom('streams', 'kafka-streams')}"
        case "flink":
            return f"Flink SQL {_in_pom('flink', 'flink-table-runtime')}"
        case "spark":
            return f"Spark {version('pyspark')}, Structured Streaming"
        case _:
            return f"Millrace {version('millrace')} with Spark {version('pyspark')}"


def _in_pom(name: str, artifact: str) -> str:
    text = (_JAVA / f"{name}.pom.xml").read_text(encoding="utf-8")
    found = re.search(rf"<artifactId>{artifact}</artifactId>\s*<version>([^<]+)</version>", text)
    assert found is not None, f"{name}.pom.xml has no {artifact}"
    return found[1]
