"""Options of the Kafka client (librdkafka) that a query may set, and why the others are Millrace's own.

Whoever writes a query may be an opponent of whoever runs it. So an option is refused unless it is listed here as one
that names no file, loads no code, changes no security and leaves exactly once as it is.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from millrace_api.model.base import Rule, problem
from millrace_api.model.values import text

ZONE = "{zone}"
"""The zone of the pod's node, as a value of ``client.rack``."""

ZONE_VARIABLE = "MILLRACE_ZONE"
"""Environment variable of a pod with the zone of its node; empty or absent if the node has none."""

_INT_MAX = 2_147_483_647


@dataclass(frozen=True)
class IntegerOption:
    """An option whose value is a whole number from ``least`` to ``most``."""

    least: int
    most: int

    def accepts(self, value: str) -> bool:
        """Return whether the client takes this value."""
        return value.removeprefix("-").isascii() and value.removeprefix("-").isdigit() and self._has(int(value))

    def _has(self, number: int) -> bool:
        return self.least <= number <= self.most

    def __str__(self) -> str:
        return f"a whole number from {self.least} to {self.most}"


@dataclass(frozen=True)
class ChoiceOption:
    """An option whose value is one of a few words."""

    words: tuple[str, ...]

    def accepts(self, value: str) -> bool:
        """Return whether the client takes this value."""
        return value in self.words

    def __str__(self) -> str:
        return f"one of {', '.join(self.words)}"


@dataclass(frozen=True)
class NameOption:
    """An option whose value is a name."""

    placeholder: str = ""

    def accepts(self, value: str) -> bool:
        """Return whether the brokers take this value."""
        rest = value.replace(self.placeholder, "") if self.placeholder else value
        return 0 < len(value) <= 249 and all(each.isascii() and (each.isalnum() or each in "._-") for each in rest)

    def __str__(self) -> str:
        return "letters, digits, '.', '_' and '-'" + (f", or {self.placeholder}" if self.placeholder else "")


_FLAG = ChoiceOption(("true", "false"))

ALLOWED: Mapping[str, IntegerOption | ChoiceOption | NameOption] = MappingProxyType(
    {
        "batch.num.messages": IntegerOption(1, 1_000_000),
        "batch.size": IntegerOption(1, _INT_MAX),
        "broker.address.family": ChoiceOption(("any", "v4", "v6")),
        "broker.address.ttl": IntegerOption(0, 86_400_000),
        "client.dns.lookup": ChoiceOption(("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")),
        "client.id": NameOption(),
        "client.rack": NameOption(ZONE),
        "compression.level": IntegerOption(-1, 12),
        "compression.type": ChoiceOption(("none", "gzip", "snappy", "lz4", "zstd")),
        "connections.max.idle.ms": IntegerOption(0, _INT_MAX),
        "enable.metrics.push": _FLAG,
        "fetch.message.max.bytes": IntegerOption(1, 1_000_000_000),
        "max.partition.fetch.bytes": IntegerOption(1, 1_000_000_000),
        "metadata.max.age.ms": IntegerOption(1, 86_400_000),
        "metadata.recovery.rebootstrap.trigger.ms": IntegerOption(0, _INT_MAX),
        "metadata.recovery.strategy": ChoiceOption(("none", "rebootstrap")),
        "reconnect.backoff.max.ms": IntegerOption(0, 3_600_000),
        "reconnect.backoff.ms": IntegerOption(0, 3_600_000),
        "request.timeout.ms": IntegerOption(1, 900_000),
        "retry.backoff.max.ms": IntegerOption(1, 300_000),
        "retry.backoff.ms": IntegerOption(1, 300_000),
        "socket.connection.setup.timeout.ms": IntegerOption(1000, _INT_MAX),
        "socket.keepalive.enable": _FLAG,
        "socket.max.fails": IntegerOption(0, 1_000_000),
        "socket.nagle.disable": _FLAG,
        "socket.receive.buffer.bytes": IntegerOption(0, 100_000_000),
        "socket.send.buffer.bytes": IntegerOption(0, 100_000_000),
        "socket.timeout.ms": IntegerOption(10, 300_000),
    }
)
"""Options that a query may set, each with its values."""

_SECURITY = "it is part of how the connection is secured", "write tls and sasl, whose secrets are references"
_CODE = "it would load code into the process", "leave it out"
_GROUP = "the source joins no group: its offsets are in the checkpoint", "leave it out"
_EXACTLY_ONCE = "results are written exactly once by it", "leave it out"
_READING = "slices of a batch are read by it", "set maxRecordsPerBatch or maxBytesPerBatch, or leave it out"
_LOGS = "nothing reads what it would report", "leave it out: the query reports failures itself, and /metrics the rest"
_UNUSED = "the clients of a query do not use it, or it has no effect any longer", "leave it out"

REFUSED: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "bootstrap.servers": ("it is a field of its own", "write bootstrapServers"),
        "metadata.broker.list": ("it is a field of its own", "write bootstrapServers"),
        "security.": _SECURITY,
        "ssl": _SECURITY,
        "enable.ssl.": _SECURITY,
        "https.": _SECURITY,
        "sasl.": _SECURITY,
        "enable.sasl.": _SECURITY,
        "oauthbearer_token_refresh_cb": _SECURITY,
        "plugin.": _CODE,
        "interceptors": _CODE,
        "group.": _GROUP,
        "partition.assignment.strategy": _GROUP,
        "session.timeout.ms": _GROUP,
        "heartbeat.interval.ms": _GROUP,
        "max.poll.": _GROUP,
        "coordinator.query.interval.ms": _GROUP,
        "enable.auto.": _GROUP,
        "auto.commit.": _GROUP,
        "offset.store.": _GROUP,
        "share.": _GROUP,
        "auto.offset.reset": ("records that are gone must be an error", "write startingOffsets for a new query"),
        "isolation.level": ("records of aborted transactions must not be read", "leave it out: it is read_committed"),
        "check.crcs": ("corrupted messages must be noticed", "leave it out: it is on"),
        "transaction": _EXACTLY_ONCE,
        "enable.idempotence": _EXACTLY_ONCE,
        "enable.gapless.guarantee": _EXACTLY_ONCE,
        "max.in.flight": _EXACTLY_ONCE,
        "acks": _EXACTLY_ONCE,
        "request.required.acks": _EXACTLY_ONCE,
        "retries": _EXACTLY_ONCE,
        "message.send.max.retries": _EXACTLY_ONCE,
        "message.timeout.ms": _EXACTLY_ONCE,
        "delivery.timeout.ms": _EXACTLY_ONCE,
        "queuing.strategy": _EXACTLY_ONCE,
        "msg_order_cmp": _EXACTLY_ONCE,
        "delivery.report.only.error": _EXACTLY_ONCE,
        "partitioner": ("keys are placed as Kafka's own clients place them", "leave it out"),
        "sticky.partitioning.linger.ms": ("keys are placed as Kafka's own clients place them", "leave it out"),
        "linger.ms": ("a batch is sent at once, in one transaction", "leave it out"),
        "queue.buffering.": ("a batch is sent at once, in one transaction", "leave it out"),
        "message.max.bytes": ("messages may be as large as the topic admits", "set max.message.bytes of the topic"),
        "compression.codec": ("it is another name of compression.type", "write compression.type"),
        "allow.auto.create.topics": ("Millrace creates no topics", "create them beforehand"),
        "enable.partition.eof": _READING,
        "fetch.": _READING,
        "queued.": _READING,
        "receive.message.max.bytes": _READING,
        "topic.": ("new partitions are found by what the query asks before each batch", "leave it out"),
        "debug": _LOGS,
        "log": _LOGS,
        "statistics.interval.ms": _LOGS,
        "api.version.": _UNUSED,
        "broker.version.fallback": _UNUSED,
        "builtin.features": _UNUSED,
        "consume": _UNUSED,
        "enable.random.seed": _UNUSED,
        "enabled_events": _UNUSED,
        "internal.": _UNUSED,
        "message.copy.max.bytes": _UNUSED,
        "produce.offset.report": _UNUSED,
        "reconnect.backoff.jitter.ms": _UNUSED,
        "socket.blocking.max.ms": _UNUSED,
        "background_event_cb": _UNUSED,
        "error_cb": _UNUSED,
        "throttle_cb": _UNUSED,
        "stats_cb": _UNUSED,
        "socket_cb": _UNUSED,
        "connect_cb": _UNUSED,
        "closesocket_cb": _UNUSED,
        "open_cb": _UNUSED,
        "resolve_cb": _UNUSED,
        "rebalance_cb": _UNUSED,
        "offset_commit_cb": _UNUSED,
        "dr_cb": _UNUSED,
        "dr_msg_cb": _UNUSED,
        "opaque": _UNUSED,
        "default_topic_conf": _UNUSED,
    }
)
"""Options, or beginnings of their names, that a query may not set: the reason, and what to write instead."""


def refusal(name: str) -> tuple[str, str] | None:
    """Return why a query may not set an option, and what to write instead; None for one that it may set."""
    if name in ALLOWED:
        return None
    found = [beginning for beginning in REFUSED if name.startswith(beginning)]
    if found:
        return REFUSED[max(found, key=len)]
    similar = difflib.get_close_matches(name.lower(), ALLOWED, n=1, cutoff=0.65)
    return "the Kafka client has no such option", f"did you mean {similar[0]}?" if similar else "correct its name"


def _checked(options: dict[str, str]) -> dict[str, str]:
    for name, value in options.items():
        if (refused := refusal(name)) is not None:
            raise problem(f'"{name}" may not be set: {refused[0]}', refused[1])
        if not ALLOWED[name].accepts(value):
            raise problem(f'"{value}" is not a value of {name}', f"write {ALLOWED[name]}")
    return options


OptionValue = Annotated[
    str, *text("[^\\n]+", 249, "the value of an option", "write a number, a name, true or false, in quotes")
]
ClientOptions = Annotated[
    dict[str, OptionValue],
    Field(max_length=len(ALLOWED), json_schema_extra={"propertyNames": {"enum": list(ALLOWED)}}),
    AfterValidator(_checked),
]
"""Options of the Kafka client by librdkafka's names."""

_NAMES = ", ".join(f"'{name}'" for name in ALLOWED)

KNOWN_OPTIONS = Rule(
    "options has a name that a query may not set",
    "write one of those that docs/kafka.md lists",
    ("options",),
    f"!has(self.options) || self.options.all(name, name in [{_NAMES}])",
    lambda kafka: all(name in ALLOWED for name in kafka.options),
)
"""For the API server: ``ClientOptions`` says which name it is, and why."""


def uses_zone(options: Mapping[str, Any]) -> bool:
    """Return whether these options name the zone of the pod's node."""
    return ZONE in options.get("client.rack", "")
