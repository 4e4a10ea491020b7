"""What becomes of Kafka's errors: retried, or reported in one sentence."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from millrace_api.errors import MillraceError, TransientError
from millrace_jobs.kafka import errors
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.kafka.errors import BrokerErrors, is_transient, kafka_problem, patiently

KAFKA = Connection("kafka:9092")
REFUSED = (
    "kafka:9092/bootstrap: Connect to ipv4#10.0.0.1:9092 failed: Connection refused "
    "(after 3ms in state CONNECT, 4 identical error(s) suppressed)"
)
OTHER_PROTOCOL = (
    "kafka:9092/bootstrap: Receive failed: Invalid response size 1213486160 (0..100000000): "
    "increase receive.message.max.bytes"
)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            KafkaError(KafkaError._TRANSPORT, REFUSED),
            "Kafka at kafka:9092 cannot be reached (Connection refused) while looking for topic trips; "
            "check bootstrapServers, and whether the brokers run",
        ),
        (
            KafkaError(KafkaError._TIMED_OUT),
            "Kafka at kafka:9092 did not answer in time while looking for topic trips; "
            "check bootstrapServers, and whether the brokers are healthy",
        ),
        (
            KafkaError(
                KafkaError._AUTHENTICATION, "sasl_plaintext://kafka:9092/bootstrap: Wrong password (after 3ms in x)"
            ),
            "Kafka at kafka:9092 refused the login (Wrong password) while looking for topic trips; "
            "check sasl: its mechanism, username and password",
        ),
        (
            KafkaError(KafkaError.INVALID_RECORD),
            "Kafka at kafka:9092 does not take the records while looking for topic trips; "
            "a compacted topic takes only messages with a key: add a key, or write to another topic",
        ),
        (
            KafkaError(KafkaError.INVALID_TIMESTAMP),
            "Kafka at kafka:9092 does not take the records while looking for topic trips; "
            "check whether the clock of this machine is right: brokers refuse times far ahead of theirs",
        ),
        (
            KafkaError(KafkaError._BAD_MSG, OTHER_PROTOCOL),
            "Kafka at kafka:9092 answers like no broker of Kafka while looking for topic trips; "
            "check bootstrapServers: something else listens at that address",
        ),
        (
            KafkaError(KafkaError.POLICY_VIOLATION),
            "Kafka at kafka:9092 gave the error POLICY_VIOLATION while looking for topic trips",
        ),
    ],
)
def test_an_error_is_a_sentence(error, said):
    for raised in (error, KafkaException(error)):
        assert str(kafka_problem(raised, "looking for topic trips", KAFKA)) == said


@pytest.mark.parametrize(
    ("code", "transient"),
    [
        (KafkaError._TRANSPORT, True),
        (KafkaError._DESTROY_BROKER, True),
        (KafkaError._TIMED_OUT, True),
        (KafkaError.NOT_LEADER_FOR_PARTITION, True),
        (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, True),
        (KafkaError._BAD_MSG, True),
        (KafkaError._AUTHENTICATION, False),
        (KafkaError._SSL, False),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, False),
        (KafkaError.OFFSET_OUT_OF_RANGE, False),
        (KafkaError.PRODUCER_FENCED, False),
    ],
)
def test_only_what_may_pass_is_transient(code, transient):
    error = KafkaError(code)
    assert is_transient(error) is transient
    assert isinstance(kafka_problem(error, "x", KAFKA), TransientError) is transient


def test_what_is_retriable_is_tried_again_and_what_is_fatal_never():
    assert is_transient(KafkaError(KafkaError.POLICY_VIOLATION, "x", retriable=True))
    assert not is_transient(KafkaError(KafkaError._TRANSPORT, "x", fatal=True))


def failing(*codes):
    left = list(codes)

    def action():
        if left:
            raise KafkaException(KafkaError(left.pop(0)))
        return "done"

    return action


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    monkeypatch.setattr(errors, "SHORTEST_PAUSE", 0.001)
    monkeypatch.setattr(errors, "LONGEST_PAUSE", 0.002)


def test_a_transient_error_is_tried_again():
    assert patiently(failing(KafkaError._TRANSPORT, KafkaError._TIMED_OUT), "x", KAFKA) == "done"


def test_patience_has_an_end():
    action = failing(*[KafkaError._TRANSPORT] * 10**6)
    with pytest.raises(TransientError, match="cannot be reached while asking"):
        patiently(action, "asking", KAFKA, patience=0.05)


def test_an_error_that_will_not_pass_is_raised_at_once():
    with pytest.raises(MillraceError, match="refused the login") as raised:
        patiently(failing(KafkaError._AUTHENTICATION), "asking", KAFKA)
    assert not isinstance(raised.value, TransientError)


def test_what_may_pass_for_one_action_is_tried_again_for_that_one():
    unknown = KafkaError.UNKNOWN_TOPIC_OR_PART
    assert patiently(failing(unknown), "x", KAFKA, passing=frozenset({unknown})) == "done"
    with pytest.raises(MillraceError, match="does not know the topic"):
        patiently(failing(unknown), "x", KAFKA)


def test_complaints_say_why_nobody_answered():
    broker_errors = BrokerErrors()
    timed_out = KafkaError(KafkaError._TIMED_OUT)
    assert broker_errors.cause_of(timed_out) is timed_out
    broker_errors(KafkaError(KafkaError._TRANSPORT, REFUSED))
    broker_errors(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    assert broker_errors.cause_of(timed_out).str() == REFUSED
    assert broker_errors.permanent is None
    broker_errors(KafkaError(KafkaError._AUTHENTICATION, "no"))
    broker_errors(KafkaError(KafkaError._TRANSPORT, REFUSED))
    assert broker_errors.cause_of(timed_out).code() == KafkaError._AUTHENTICATION
    assert broker_errors.permanent.code() == KafkaError._AUTHENTICATION
    no_topic = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    assert broker_errors.cause_of(no_topic) is no_topic
    broker_errors.clear()
    assert broker_errors.permanent is None
    assert broker_errors.cause_of(timed_out) is timed_out


TOKENS = Connection(
    "kafka:9092", mechanism="OAUTHBEARER", login=(("sasl.oauthbearer.token.endpoint.url", "https://t"),)
)
NOT_GOT = "Failed to acquire SASL OAUTHBEARER token: "


@pytest.mark.parametrize(
    ("answer", "said", "transient"),
    [
        ('{"error": "invalid_client", "error_description": "who\n is that"}', "(invalid_client: who is that)", False),
        ('{"error": "invalid_scope"}', "(invalid_scope)", False),
        ('{"error": "temporarily_unavailable"}', "(temporarily_unavailable)", True),
        ('["odd"]', '(["odd"])', True),
        ("<html>" + "x" * 500, "(<html>" + "x" * 194 + ")", True),
        ('overloaded{"access_token": "a"}', "(overloaded", True),
        ("Must supply an unexpired token: now=2ms, exp=1ms", "(Must supply an unexpired token", True),
        ('Protocol "ftp" is disabled', '(Protocol "ftp" is disabled)', False),
        ("Could not resolve host: t", "(Could not resolve host: t)", True),
        ("Failed to connect to t:443 after 0 ms: Could not connect to server", "(Failed to connect to t:443", True),
        ("Operation timed out after 20001 milliseconds with 0 bytes received", "(Operation timed out after", True),
        ("SSL certificate OpenSSL verify result: unable to get local issuer certificate (20)", "(SSL certif", False),
    ],
)
def test_a_token_that_a_client_did_not_get_is_told_in_the_provider_s_words(answer, said, transient):
    error = KafkaError(KafkaError._AUTHENTICATION, NOT_GOT + answer)
    assert is_transient(error) is transient
    problem = kafka_problem(error, "looking for topic trips", TOKENS)
    assert isinstance(problem, TransientError) is transient
    assert f"no token for the login to Kafka at kafka:9092 from https://t {said}" in str(problem)
    hint = (
        "tokenEndpoint, and whether it answers" if transient else ": its tokenEndpoint, clientId, clientSecret, scope"
    )
    assert f"check sasl.oidc{'.' if transient else ''}{hint}" in str(problem)


def test_a_token_that_brokers_refuse_has_a_hint_of_its_own():
    error = KafkaError(KafkaError._AUTHENTICATION, "sasl_ssl://kafka:9092/1: invalid_token (after 3ms in x)")
    assert str(kafka_problem(error, "looking for topic trips", TOKENS)) == (
        "Kafka at kafka:9092 refused the login (invalid_token) while looking for topic trips; "
        "check which issuer, audience and scope the brokers accept, and what the token's user may do"
    )
