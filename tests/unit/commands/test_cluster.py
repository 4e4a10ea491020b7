"""Which cluster is meant: that of a kubeconfig, or, in a pod that has none, its own."""

from __future__ import annotations

import errno
from base64 import urlsafe_b64encode

import pytest
import yaml
from kubernetes.config import incluster_config, kube_config
from urllib3.connection import HTTPConnection
from urllib3.exceptions import NewConnectionError

from millrace_api.errors import MillraceError, TransientError
from millrace_operator.commands.cluster import connect, user_errors
from millrace_operator.kube.client import load_configuration, own_account, own_namespace

KUBECONFIG = yaml.safe_dump(
    {
        "current-context": "lab",
        "clusters": [{"name": "lab", "cluster": {"server": "http://lab:1"}}],
        "users": [{"name": "me", "user": {}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "me", "namespace": "cabs"}}],
    }
)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty home, of a user who has named no kubeconfig."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    return tmp_path


@pytest.fixture
def account(home, monkeypatch):
    """A pod's service account, of the namespace ``streams``."""
    folder = home / "account"
    folder.mkdir()
    for name, text in (("token", "t"), ("ca.crt", "c"), ("namespace", "streams\n")):
        (folder / name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(folder / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(folder / "ca.crt"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    return folder


def place(cluster):
    return cluster.server, cluster.context, cluster.namespace


@pytest.mark.usefixtures("account")
def test_in_a_pod_the_cluster_is_that_of_its_service_account():
    assert place(connect(None, None, None)) == ("https://10.96.0.1:443", "in-cluster", "streams")
    assert connect(None, None, "cabs").namespace == "cabs"


def test_a_pods_token_is_read_again_when_it_is_renewed(account):
    configuration = connect(None, None, None).client.configuration
    assert configuration.get_api_key_with_prefix("BearerToken") == "bearer t"
    assert configuration.refresh_api_key_hook is not None


@pytest.mark.usefixtures("account")
def test_a_kubeconfig_comes_first(home, monkeypatch):
    own = home / ".kube" / "config"
    own.parent.mkdir()
    own.write_text(KUBECONFIG, encoding="utf-8")
    assert place(connect(None, None, None)) == ("http://lab:1", "lab", "cabs")
    own = own.rename(home / "kubeconfig")
    assert connect(own, None, None).context == "lab"
    monkeypatch.setenv("KUBECONFIG", str(own))
    assert connect(None, None, None).context == "lab"


@pytest.mark.usefixtures("account")
def test_a_kubeconfig_that_is_named_has_to_be_there(home, monkeypatch):
    with pytest.raises(MillraceError, match="there is no kubeconfig"):
        connect(home / "gone", None, None)
    with pytest.raises(MillraceError, match="there is no kubeconfig"):
        connect(None, "lab", None)
    monkeypatch.setenv("KUBECONFIG", str(home / "gone"))
    with pytest.raises(MillraceError, match="there is no kubeconfig"):
        connect(None, None, None)


def test_a_pod_without_a_token_is_told_so(account):
    (account / "token").unlink()
    with pytest.raises(MillraceError, match=r"service account cannot be used: .*mount its token"):
        connect(None, None, None)


@pytest.mark.usefixtures("home")
def test_elsewhere_there_has_to_be_a_kubeconfig():
    with pytest.raises(MillraceError, match=r"there is no kubeconfig .*/\.kube/config; write --kubeconfig FILE"):
        connect(None, None, None)


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("text", ["foo: [", "just text", "", KUBECONFIG.replace("cluster: lab", "cluster: secret")])
def test_an_operator_needs_a_usable_kubeconfig_or_a_service_account(home, monkeypatch, text):
    file = home / "kubeconfig"
    file.write_text(text, encoding="utf-8")
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(file))
    with pytest.raises(MillraceError, match=r"nor a usable kubeconfig: .*set KUBECONFIG") as failure:
        load_configuration()
    assert "secret" not in str(failure.value)


def test_a_pod_knows_its_namespace(account):
    assert own_namespace() == "streams"
    (account / "namespace").unlink()
    assert own_namespace() is None


def test_a_pod_knows_its_account(account):
    claims = urlsafe_b64encode(b'{"sub": "system:serviceaccount:streams:millrace-operator"}').decode().rstrip("=")
    (account / "token").write_text(f"e30.{claims}.c2ln", encoding="utf-8")
    assert own_account() == ("streams", "millrace-operator")
    (account / "token").unlink()
    assert own_account() is None


@pytest.mark.parametrize("claims", ["", "!", "W10", "e30", "eyJzdWIiOiAibWUifQ", "eyJzdWIiOiA1fQ"])
def test_a_token_that_names_no_account_is_an_error_and_is_not_repeated(account, claims):
    (account / "token").write_text(f"hunter2.{claims}", encoding="utf-8")
    with pytest.raises(MillraceError, match="does not name its service account") as failure:
        own_account()
    assert "hunter2" not in str(failure.value)


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), "the connection is refused"),
        (OSError(errno.EHOSTUNREACH, "No route to host"), "no route to host"),
        (OSError(errno.ENETUNREACH, "Network is unreachable"), "network is unreachable"),
    ],
)
def test_a_server_without_a_connection_is_reported_with_its_cause(home, cause, said):
    file = home / "kubeconfig"
    file.write_text(KUBECONFIG, encoding="utf-8")
    cluster = connect(file, None, None)
    failure = NewConnectionError(HTTPConnection("lab"), "failed")
    failure.__cause__ = cause
    expected = f"http://lab:1 of context lab cannot be reached: {said};"
    with pytest.raises(TransientError, match=expected), user_errors(cluster, "list", "pods", None):
        raise failure
