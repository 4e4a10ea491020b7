"""The meaning of Kafka's errors: which are transient, and a sentence for the user about each."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_api.model.kafka_login import SaslMechanism
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.pending import AwaitedServer
from millrace_support.backoff import Backoff

PATIENCE = 60.0
"""Seconds for which a call is retried while its error is transient."""

SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 1.0
"""Seconds between two tries; the pause doubles after each try."""

T = TypeVar("T")

_UNREACHABLE = ("cannot be reached", "check bootstrapServers, and whether the brokers run")
_SILENT = ("did not answer in time", "check bootstrapServers, and whether the brokers are healthy")
_LOGIN = ("refused the login", "check sasl: its mechanism, username and password")
_ACCEPTED_HINT = "check which issuer, audience and scope the brokers accept, and what the token's user may do"
_NOT_GOT = "Failed to acquire SASL OAUTHBEARER token: "
"""How librdkafka begins an error about a token, which ends as an answer to its request, or with an error of curl."""

_MOST_OF_ANSWER = 200
"""Characters of such an answer that a message repeats."""

_LASTING_TOKEN = re.compile(r'"error"|certificate|trust anchors|protocol "', re.IGNORECASE)
_PASSING_TOKEN = re.compile("server_error|temporarily_unavailable")
"""What in such an answer shows that it lasts: errors of OAuth 2 (RFC 6749, 5.2) but these two, and a wrong URL or CA.

Anything else may pass: errors of the network, and pages of a proxy, of which librdkafka does not show the status. It
asks again itself after 429 and 5xx, for up to a minute, and then shows all answers in one, also where the last one is a
token.
"""

_NO_TOPIC = ("does not know the topic", "create it, or correct its name")
_NO_BROKER = ("answers like no broker of Kafka", "check bootstrapServers: something else listens at that address")
_TOO_LARGE = "receive.message.max.bytes"
"""What librdkafka says to raise where an answer begins with no sensible length, such as one of HTTP."""

_NO_KEY_HINT = "a compacted topic takes only messages with a key: add a key, or write to another topic"
_CLOCK_HINT = "check whether the clock of this machine is right: brokers refuse times far ahead of theirs"
_FORBIDDEN = "does not let this user do that"

_MEANINGS: dict[int, tuple[str, str]] = {
    KafkaError._TRANSPORT: _UNREACHABLE,
    KafkaError._ALL_BROKERS_DOWN: _UNREACHABLE,
    KafkaError._DESTROY_BROKER: _UNREACHABLE,
    KafkaError.BROKER_NOT_AVAILABLE: _UNREACHABLE,
    KafkaError.NETWORK_EXCEPTION: _UNREACHABLE,
    KafkaError._RESOLVE: ("has a host name that cannot be found", "check bootstrapServers"),
    KafkaError._TIMED_OUT: _SILENT,
    KafkaError._TIMED_OUT_QUEUE: _SILENT,
    KafkaError._MSG_TIMED_OUT: _SILENT,
    KafkaError.REQUEST_TIMED_OUT: _SILENT,
    KafkaError._AUTHENTICATION: _LOGIN,
    KafkaError.SASL_AUTHENTICATION_FAILED: _LOGIN,
    KafkaError.UNSUPPORTED_SASL_MECHANISM: ("does not offer this way to log in", "write another sasl.mechanism"),
    KafkaError._SSL: ("cannot be reached over TLS", "check tls: the certificate authority, certificate and key"),
    KafkaError.TOPIC_AUTHORIZATION_FAILED: (_FORBIDDEN, "allow it to describe and read the topic, or to write to it"),
    KafkaError.GROUP_AUTHORIZATION_FAILED: (_FORBIDDEN, "allow it to read the consumer group"),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: (_FORBIDDEN, "allow it to describe the cluster"),
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (_FORBIDDEN, "allow it to write with the transactional id"),
    KafkaError.UNKNOWN_TOPIC_OR_PART: _NO_TOPIC,
    KafkaError._UNKNOWN_TOPIC: _NO_TOPIC,
    KafkaError.INVALID_RECORD: ("does not take the records", _NO_KEY_HINT),
    KafkaError.INVALID_TIMESTAMP: ("does not take the records", _CLOCK_HINT),
    KafkaError._BAD_MSG: ("sent records that fail their checksum", "look for a disk or a network that corrupts data"),
    KafkaError._UNKNOWN_PARTITION: ("does not know the partition", "correct its number"),
}

_TRANSIENT = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._DESTROY_BROKER,  # its broker has left the cluster's metadata: another one answers the next try
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._WAIT_COORD,
        KafkaError._BAD_MSG,  # a failed checksum: corrupted in transit, unless it fails every time
        KafkaError.INVALID_MSG,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_CONTROLLER,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
    }
)
_LOGINS = frozenset({KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL})
_REFUSALS = _LOGINS - {KafkaError._SSL}
_TIMING = re.compile(r"\s*\(after .*\)$")


class BrokerErrors:
    """The errors that a client reports about its brokers in addition to failed calls; passed to it as ``error_cb``.

    A failed call reports only that no broker answered. The cause, such as a refused login, arrives here.
    """

    def __init__(self) -> None:
        self._last: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        """Remember this error; it replaces a transient one, unless it is only "all brokers down"."""
        vague = error.code() == KafkaError._ALL_BROKERS_DOWN
        if self._last is None or (is_transient(self._last) and not vague):
            self._last = error

    def cause_of(self, error: KafkaError) -> KafkaError:
        """Return the cause of a call's ``error``: the remembered error if ``error`` is transient, else ``error``."""
        return self._last if self._last is not None and is_transient(error) else error

    def clear(self) -> None:
        """Forget the remembered error, because Kafka has answered since."""
        self._last = None

    @property
    def permanent(self) -> KafkaError | None:
        """The remembered error if it is permanent, otherwise None."""
        return self._last if self._last is not None and not is_transient(self._last) else None


def is_transient(error: KafkaError) -> bool:
    """Return whether an error may pass without intervention."""
    if (answer := _token_answer(error)) is not None:
        return not _LASTING_TOKEN.search(answer) or _PASSING_TOKEN.search(answer) is not None
    return not error.fatal() and (error.retriable() or error.code() in _TRANSIENT)


def is_login(error: BaseException | None) -> bool:
    """Return whether an error means that brokers refused the login or the certificate."""
    return isinstance(error, KafkaException) and error_of(error).code() in _LOGINS


def kafka_problem(error: KafkaException | KafkaError, doing: str, connection: Connection) -> MillraceError:
    """Return the error as a sentence for the user; a TransientError if it may pass by itself.

    ``doing`` describes the failed operation, such as ``looking for topic trips``.
    """
    error = error_of(error)
    if (answer := _token_answer(error)) is not None:
        return _token_problem(error, answer, doing, connection)
    why, hint = _MEANINGS.get(error.code(), (f"gave the error {error.name()}", ""))
    if error.code() in _REFUSALS and connection.mechanism == SaslMechanism.OAUTHBEARER:
        hint = _ACCEPTED_HINT
    detail = f" ({detail})" if (detail := _detail(error)) else ""
    if error.code() == KafkaError._BAD_MSG and _TOO_LARGE in error.str():
        (why, hint), detail = _NO_BROKER, ""
    problem = Problem(f"Kafka at {connection.servers} {why}{detail} while {doing}", hint)
    return TransientError(problem) if is_transient(error) else MillraceError(problem)


def patiently(
    action: Callable[[], T],
    doing: str,
    connection: Connection,
    *,
    patience: float = PATIENCE,
    passing: frozenset[int] = frozenset(),
) -> T:
    """Return the result of ``action``, retried while its error is transient, for ``patience`` seconds in all.

    Args:
        action: the operation; it raises KafkaException if Kafka fails.
        doing: description of the operation, for the error message.
        connection: the cluster, for the error message.
        patience: seconds after which to give up.
        passing: codes of further errors that count as transient for this action.

    Raises:
        MillraceError: the error as worded by ``kafka_problem``; a TransientError if a transient error outlasts
            ``patience``.
    """
    deadline = time.monotonic() + patience
    backoff = Backoff(SHORTEST_PAUSE, LONGEST_PAUSE)
    with awaited(connection, doing) as kafka:
        while True:
            try:
                return action()
            except KafkaException as error:
                pause = backoff.next()
                may_pass = is_transient(error_of(error)) or error_of(error).code() in passing
                problem = kafka_problem(error, doing, connection)
                if not may_pass or time.monotonic() + pause > deadline:
                    raise problem from error
                kafka.failed(*explained(problem))
            time.sleep(pause)


def awaited(connection: Connection, doing: str) -> AwaitedServer:
    """Return the mark of tries of a call of Kafka, by which the page of the run says what is waited for."""
    return AwaitedServer(f"Kafka at {connection.servers}", doing)


def explained(problem: MillraceError) -> tuple[str, str]:
    """Return the message and the hint of an error."""
    first = problem.problems[0]
    return first.message, first.hint


def error_of(error: KafkaException | KafkaError) -> KafkaError:
    """Return the KafkaError that an exception carries."""
    if isinstance(error, KafkaException):
        carried = error.args[0]
        assert isinstance(carried, KafkaError)
        return carried
    return error


def _detail(error: KafkaError) -> str:
    """Return what librdkafka reports beyond the kind of error, without addresses and times."""
    detail = _TIMING.sub("", error.str()).rpartition(": ")[2]
    return "" if detail == KafkaError(error.code()).str().rpartition(": ")[2] else detail


def _token_answer(error: KafkaError) -> str | None:
    """Return what was said about a token that a client did not get; None for an error about anything else."""
    text = error.str()
    return text.removeprefix(_NOT_GOT) if text.startswith(_NOT_GOT) else None


def _token_problem(error: KafkaError, answer: str, doing: str, connection: Connection) -> MillraceError:
    endpoint = connection.token_endpoint or "the signer"
    message = (
        f"no token for the login to Kafka at {connection.servers} from {endpoint} ({_in_short(answer)}) while {doing}"
    )
    if is_transient(error):
        return TransientError(Problem(message, "check sasl.oidc.tokenEndpoint, and whether it answers"))
    return MillraceError(Problem(message, "check sasl.oidc: its tokenEndpoint, clientId, clientSecret, scope and ca"))


def _in_short(answer: str) -> str:
    """Return an answer of an identity provider as text; errors of OAuth 2 without their JSON."""
    try:
        fields = json.loads(answer, strict=False)
        answer = ": ".join(str(fields[name]) for name in ("error", "error_description") if fields.get(name)) or answer
    except (ValueError, AttributeError, TypeError):
        pass  # no JSON object: an error of curl, or a page for people
    return " ".join(answer.split())[:_MOST_OF_ANSWER]
