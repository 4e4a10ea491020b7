"""Tokens for Amazon MSK, which its own signer makes of the identity of this process.

Clients ask for tokens in threads of their own, and each task has a client. So a token is shared by all clients of this
process until it is due, and signing is never repeated for each of them. While one of them has a token signed that is
due, the others use the old one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from millrace_api.errors import MillraceError, Problem, TransientError

if TYPE_CHECKING:
    from botocore.credentials import CredentialProvider

_DUE = 300.0
"""Seconds of validity below which a new token is signed. MSK's tokens are valid for 900 s."""

_CONNECT_SECONDS, _ANSWER_SECONDS, _ATTEMPTS = 3.0, 10.0, 2
"""Time-outs of a connection to AWS and of its answer, and how often it is asked for credentials at most."""


class Token(NamedTuple):
    """A token, and the second since 1970 at which it expires."""

    text: str
    expiry: float


_SERVER_ERRORS = 500
"""The least status of HTTP with which a server says that it has failed itself."""

_NETWORK_HINT = "check the network, and whether a policy admits the pods to their identity (identityEndpoints)"
_IDENTITY_HINT = (
    "give the pods an account with a role, and name it in serviceAccountName; outside a cluster, log in to AWS"
)
_SETTINGS_HINT = "correct the variables AWS_... and the configuration files of AWS where the query runs"
_ROLE_HINT = "let the pods' own role assume that of awsMskIam.roleArn, or leave roleArn out"

_tokens: dict[MskTokens, Token] = {}
_signing: dict[MskTokens, threading.Lock] = {}


@dataclass(frozen=True)
class MskTokens:
    """What a client calls for a token: ``oauth_cb``; equal ones give the same token, and they are picklable.

    Attributes:
        servers: the brokers, for messages.
        region: region of the cluster.
        role: ARN of the role to assume; empty for none.
    """

    servers: str
    region: str
    role: str = ""

    def __call__(self, _: object = None) -> Token:
        """Return a valid token; one that is due, but still valid, if no other can be had now.

        Raises:
            MillraceError: the process has no identity in AWS, cannot use its settings, or has no signer.
            TransientError: what gives out credentials does not answer.
        """
        signing = _signing.setdefault(self, threading.Lock())
        token = _tokens.get(self)
        if token is None or token.expiry <= time.time():
            signing.acquire()
        elif token.expiry >= time.time() + _DUE or not signing.acquire(blocking=False):
            return token
        try:
            return self._renewed()
        finally:
            signing.release()

    def _renewed(self) -> Token:
        token = _tokens.get(self)  # another thread may have renewed it
        left = 0.0 if token is None else token.expiry - time.time()
        if token is None or left < _DUE:
            try:
                token = _tokens[self] = self._sign()
            except MillraceError:
                if token is None or left <= 0:
                    raise
        return token

    def _sign(self) -> Token:
        try:
            from aws_msk_iam_sasl_signer.MSKAuthTokenProvider import generate_auth_token_from_credentials_provider
            from botocore import exceptions as aws
        except ImportError:
            why, hint = "the package aws-msk-iam-sasl-signer-python is missing", "install it where the query runs"
            raise MillraceError(self._problem(why, hint)) from None
        try:
            text, expiry_ms = generate_auth_token_from_credentials_provider(self.region, self._identity())
        except (aws.ConnectionError, aws.HTTPClientError, aws.CredentialRetrievalError) as error:
            raise TransientError(self._problem(f"AWS does not give credentials ({error})", _NETWORK_HINT)) from error
        except aws.ClientError as error:
            raise self._refused(error.response) from error
        except (aws.NoCredentialsError, AttributeError, ValueError) as error:  # the signer does not look for None
            raise MillraceError(self._problem("this process has no identity in AWS", _IDENTITY_HINT)) from error
        except aws.BotoCoreError as error:
            why = f"the client of AWS cannot use its settings ({error})"
            raise MillraceError(self._problem(why, _SETTINGS_HINT)) from error
        return Token(text, expiry_ms / 1000)

    def _identity(self) -> CredentialProvider:
        """Return what gives the signer credentials; its own calls for these have no time-outs of ours."""
        from aws_msk_iam_sasl_signer.MSKAuthTokenProvider import DEFAULT_STS_SESSION_NAME
        from botocore.config import Config
        from botocore.credentials import CredentialProvider, Credentials
        from botocore.session import Session

        session, region, role = Session(), self.region, self.role
        retries = {"total_max_attempts": _ATTEMPTS, "mode": "standard"}
        session.set_default_client_config(
            Config(connect_timeout=_CONNECT_SECONDS, read_timeout=_ANSWER_SECONDS, retries=retries)
        )

        class Identity(CredentialProvider):  # type: ignore[misc]
            def load(self) -> Credentials | None:
                if not role:
                    return session.get_credentials()
                answer = session.create_client("sts", region).assume_role(
                    RoleArn=role, RoleSessionName=DEFAULT_STS_SESSION_NAME
                )
                found = answer["Credentials"]
                return Credentials(found["AccessKeyId"], found["SecretAccessKey"], found["SessionToken"])

        return Identity()

    def _refused(self, answer: Mapping[str, Any]) -> MillraceError:
        """Return the error for an answer of AWS that refuses credentials."""
        details = answer.get("Error", {})
        code, status = details.get("Code", ""), answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        problem = self._problem(f"AWS answers {code} ({details.get('Message', '')})", _ROLE_HINT)
        passing = status >= _SERVER_ERRORS or "Throttl" in code or code == "RequestLimitExceeded"
        return TransientError(problem) if passing else MillraceError(problem)

    def _problem(self, why: str, hint: str) -> Problem:
        return Problem(f"no token for the login to Kafka at {self.servers}: {why}", hint)
