"""Checks the options of a Kafka client by making one, and reports in the library's words why it refuses them."""

from __future__ import annotations

from collections.abc import Iterator

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.kafka import KafkaConnection
from millrace_api.model.streamquery import Spec
from millrace_jobs.kafka.connection import CLIENT, Connection


def require_options(connection: KafkaConnection, field: str) -> None:
    """Check that clients can be made with the options of a connection, whose field this is; reach no broker.

    Raises:
        MillraceError: the library refuses them.
    """
    if (problem := _problem(connection, field)) is not None:
        raise MillraceError(problem)


def option_problems(spec: Spec) -> Iterator[Problem]:
    """Yield the library's reason for each connection of a query whose options it refuses."""
    connections: dict[str, KafkaConnection | None]
    connections = {f"spec.sources.{name}.kafka": source.kafka for name, source in spec.sources.items()}
    for field, output in spec.outputs.items():
        connections[f"{field}.sink.{output.sink.kind}"] = output.sink.kafka or output.sink.table
    for field, connection in connections.items():
        if connection is not None and (problem := _problem(connection, field)) is not None:
            yield problem


def _problem(connection: KafkaConnection, field: str) -> Problem | None:
    if not connection.options:
        return None
    from confluent_kafka import Consumer, KafkaException, Producer  # only these connections load it here

    from millrace_jobs.kafka.errors import error_of

    settings = CLIENT | Connection.of(connection).client_options()
    try:
        Producer(settings)
        Consumer(settings | {"group.id": "millrace"}).close()
    except KafkaException as error:
        message = error_of(error).str().rpartition("Failed to create ")[2].partition(": ")[2].replace("`", "")
        return Problem(f"the Kafka client refuses these options: {message}", "correct them", field=f"{field}.options")
    return None
