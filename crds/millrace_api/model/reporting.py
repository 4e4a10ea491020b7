"""What a query reports about itself to tools beside Prometheus: Spark's event log, and lineage."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from millrace_api.model.base import Model, Rule, exactly_one, problem
from millrace_api.model.externals import External, ExternalKind
from millrace_api.model.secrets import SecretValue
from millrace_api.model.values import Count, Path, PositiveDuration, text

_DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9]){0,1}"
_PREFIX = rf"{_DNS_LABEL}([.]{_DNS_LABEL})*"
LABEL_KEY = rf"({_PREFIX}/){{0,1}}[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9]){{0,1}}"
"""The key of a label in Kubernetes; without ``?``, which ``tools.crd_compatibility`` takes for an operator of CEL."""

LONG_PREFIX = "[^/]{254}"
"""The beginning of a key whose prefix is longer than Kubernetes takes."""

_LABEL_HINT = "write at most 63 letters, digits, '-', '_' and '.', such as team or example.org/team"


def _with_short_prefix(key: str) -> str:
    if re.match(LONG_PREFIX, key):
        raise problem("the prefix of a label has more than 253 characters", "write a shorter one")
    return key


LabelKey = Annotated[str, *text(LABEL_KEY, 317, "the key of a label", _LABEL_HINT), AfterValidator(_with_short_prefix)]
LabelValue = Annotated[
    str,
    *text(
        r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?",
        63,
        "the value of a label",
        "write at most 63 letters, digits, '-', '_' and '.', the first and the last of them letters or digits",
    ),
]
LineageUrl = Annotated[
    str,
    *text(
        r"https?://(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?/[A-Za-z0-9._~%/-]*",
        1024,
        "the URL of a receiver of lineage",
        "write scheme, host and path, such as https://marquez.example.org/api/v1/lineage",
    ),
]
LineageNamespace = Annotated[
    str,
    *text(r"[A-Za-z0-9._:/-]+", 255, "a namespace of jobs", "write letters, digits, '.', '_', ':', '/' and '-'"),
]


class EventLogSpec(Model):
    """Spark's event log, which its history server shows after a run."""

    path: Annotated[Path, External(ExternalKind.DATA)] = Field(
        description="Folder of the logs, or s3a:// with a bucket and a prefix; several queries may share it.",
        examples=["s3a://lake/spark-events"],
    )
    runs: Count = Field(default=3, description="Runs of the query whose logs are kept, the present one among them.")


class LineageHttpSpec(Model):
    """A receiver of OpenLineage's events over HTTP."""

    url: Annotated[LineageUrl, External(ExternalKind.LINEAGE)] = Field(
        description="URL that events are posted to.", examples=["https://marquez.example.org/api/v1/lineage"]
    )
    api_key: SecretValue | None = Field(
        default=None,
        description="Key that each request bears, read again each time.",
        examples=["{secretKeyRef: {name: marquez, key: token}}"],
    )
    ca: SecretValue | None = Field(
        default=None, description="Certificate authority of the receiver, PEM; default: those of the system."
    )


class LineageSpec(Model):
    """OpenLineage's events about what a query reads and writes."""

    rules: ClassVar[tuple[Rule, ...]] = (
        exactly_one("http", "file", hint="write http: {url: ...}, or file: for one machine"),
    )

    namespace: LineageNamespace | None = Field(
        default=None, description="Namespace of the job; default: the query's own, else default."
    )
    interval: PositiveDuration = Field(
        default=PositiveDuration("5m"), description="Time between two events of a running query, at least."
    )
    http: LineageHttpSpec | None = Field(default=None, description="A receiver over HTTP.")
    file: Annotated[Path | None, External(ExternalKind.FILES)] = Field(
        default=None, description="A file that events are appended to, one a line; for one machine."
    )
