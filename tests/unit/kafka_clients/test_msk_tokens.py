"""Tokens for Amazon MSK: what its signer makes of an identity, how long they are kept, and what is said without one."""

from __future__ import annotations

import base64
import os
import pickle
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import parse_qs, urlparse

import pytest

from millrace_api.errors import MillraceError, TransientError
from millrace_api.model.kafka import KafkaConnection
from millrace_jobs.kafka import msk_tokens
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.kafka.msk_tokens import MskTokens, Token

MSK = MskTokens("b-1.kafka:9098", "eu-west-1")
ROLE = "arn:aws:iam::123456789012:role/readers"


@pytest.fixture(autouse=True)
def no_identity(monkeypatch, tmp_path):
    """No login of whoever runs the tests, no request to a cloud, and no token of another test."""
    for name in [each for each in os.environ if each.startswith("AWS_")]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setattr(msk_tokens, "_tokens", {})


@pytest.fixture
def identity(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")


def signed(token: str) -> dict[str, list[str]]:
    url = urlparse(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    assert url.hostname == "kafka.eu-west-1.amazonaws.com"
    return parse_qs(url.query)


@pytest.mark.usefixtures("identity")
def test_a_token_is_a_signed_request_to_connect_which_has_no_secret():
    token = MSK()
    asked = signed(token.text)
    assert asked["Action"] == ["kafka-cluster:Connect"]
    assert asked["X-Amz-Credential"][0].startswith("AKIDEXAMPLE/")
    assert "hunter2" not in str(asked)
    assert 800 < token.expiry - time.time() <= 900


@pytest.mark.usefixtures("identity")
def test_the_settings_of_a_client_ask_for_tokens_and_equal_ones_share_them():
    sasl = {"mechanism": "OAUTHBEARER", "awsMskIam": {"region": "eu-west-1"}}
    spec = KafkaConnection.model_validate({"bootstrapServers": "b-1.kafka:9098", "tls": {}, "sasl": sasl})
    connection = Connection.of(spec)
    settings = connection.settings()
    assert settings["sasl.mechanism"] == "OAUTHBEARER"
    other = pickle.loads(pickle.dumps(connection)).settings()
    assert hash(frozenset(settings.items())) == hash(frozenset(other.items()))  # consumers are pooled by their settings
    assert settings["oauth_cb"](None) is other["oauth_cb"](None)


@pytest.mark.usefixtures("identity")
def test_a_token_that_is_due_is_replaced_and_kept_where_that_fails(monkeypatch):
    due = Token("due", time.time() + 60)
    msk_tokens._tokens[MSK] = due
    with monkeypatch.context() as without:
        without.delenv("AWS_ACCESS_KEY_ID")
        assert MSK() is due
    assert MSK() != due
    msk_tokens._tokens[MSK] = Token("expired", time.time() - 1)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(MillraceError):
        MSK()


@pytest.mark.usefixtures("identity")
def test_while_a_token_is_renewed_the_others_use_the_old_one(monkeypatch):
    asked, answered = threading.Event(), threading.Event()
    other = MskTokens("b-2.kafka:9098", "eu-west-1")
    due, fresh = Token("due", time.time() + 60), Token("fresh", time.time() + 900)

    def sign(tokens):
        if tokens == MSK:
            asked.set()
            answered.wait(30)
        return fresh

    monkeypatch.setattr(MskTokens, "_sign", sign)
    msk_tokens._tokens[MSK] = due
    with ThreadPoolExecutor() as threads:
        renewed = threads.submit(MSK)
        try:
            assert asked.wait(30)
            assert threads.submit(MSK).result(10) is due
            assert threads.submit(other).result(10) is fresh, "another cluster does not wait"
        finally:
            answered.set()
        assert renewed.result(30) is fresh
    assert MSK() is fresh


@pytest.mark.usefixtures("identity")
@pytest.mark.parametrize("role", ["", ROLE])
def test_an_aws_that_does_not_answer_is_given_up(monkeypatch, tmp_path, role):
    monkeypatch.setattr(msk_tokens, "_ANSWER_SECONDS", 0.2, raising=False)
    if not role:  # the role of an account in Kubernetes is assumed by the same service
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.setenv("AWS_ROLE_ARN", ROLE)
        monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
        (tmp_path / "token").write_text("a token")
    with socket.create_server(("127.0.0.1", 0), backlog=16) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{silent.getsockname()[1]}")
        said = []

        def ask():
            try:
                MskTokens("b-1.kafka:9098", "eu-west-1", role)()
            except MillraceError as error:
                said.append(error)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(15)
    assert len(said) == 1, "it is still waiting"
    assert isinstance(said[0], TransientError)
    assert "AWS does not give credentials (Read timeout" in str(said[0])


@pytest.mark.parametrize("role", ["", ROLE])
def test_without_an_identity_the_error_says_where_one_comes_from(role):
    with pytest.raises(MillraceError) as raised:
        MskTokens("b-1.kafka:9098", "eu-west-1", role)()
    assert not isinstance(raised.value, TransientError)
    assert str(raised.value) == (
        "no token for the login to Kafka at b-1.kafka:9098: this process has no identity in AWS; give the pods an "
        "account with a role, and name it in serviceAccountName; outside a cluster, log in to AWS"
    )


@pytest.mark.parametrize("variable", ["AWS_PROFILE", "AWS_STS_REGIONAL_ENDPOINTS"])
def test_settings_that_cannot_be_used_are_no_missing_identity(identity, monkeypatch, variable):
    monkeypatch.setenv(variable, "elsewhere")
    with pytest.raises(MillraceError, match=r"settings \(.*elsewhere.*\); correct the variables AWS_") as raised:
        MskTokens("b-1.kafka:9098", "eu-west-1", ROLE)()
    assert not isinstance(raised.value, TransientError)


@pytest.mark.usefixtures("identity")
def test_the_region_is_that_of_the_cluster_and_an_aws_that_cannot_be_reached_may_pass(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:9")
    with pytest.raises(TransientError, match="AWS does not give credentials"):
        MskTokens("b-1.kafka:9098", "eu-west-1", ROLE)()


@pytest.mark.parametrize(
    ("code", "status", "passes"),
    [("AccessDenied", 403, False), ("Throttling", 400, True), ("InternalFailure", 500, True)],
)
def test_a_refusal_of_aws_is_told_and_passes_only_if_it_may(code, status, passes):
    answer = {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    error = MSK._refused(answer)
    assert isinstance(error, TransientError) is passes
    assert f"AWS answers {code} (no); let the pods' own role assume that of awsMskIam.roleArn" in str(error)
