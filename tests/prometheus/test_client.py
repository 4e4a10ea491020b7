"""The client at a real Prometheus: what it asks, how it logs in, and what it says when something is wrong."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.cache import require
from millrace_operator.metrics_source import client
from millrace_operator.metrics_source.client import Prometheus, PrometheusError
from millrace_operator.metrics_source.job_metrics import equal, like
from millrace_operator.metrics_source.result import Sample, Series
from millrace_operator.metrics_source.settings import PrometheusSettings

from .certificates import Authority
from .jobs import PATIENCE

pytestmark = [pytest.mark.prometheus, pytest.mark.timeout(1800)]

PASSWORD = "grinding slowly"
PASSWORD_HASH = "$2b$04$UMjQiF1T2OBHO2EWCRh6guLDAhW8MvkRGA07uz/vw0tffFlW9rRSe"


@pytest.fixture
def authority(tmp_path):
    require("openssl")
    return Authority(tmp_path, "authority")


def test_scalars_vectors_and_matrices_are_read(shared, connect):
    prometheus = connect(shared)
    assert prometheus.instant("1.5", 12.345) == (Series({}, (Sample(12.345, 1.5),)),)
    assert prometheus.instant('label_replace(vector(-Inf), "a", "b", "", "")', 1) == (
        Series({"a": "b"}, (Sample(1, float("-inf")),)),
    )
    assert prometheus.instant("nothing") == ()
    (series,) = prometheus.instant("vector(time())[1s:500ms]", 11)
    assert series.samples[-2:] == (Sample(10.5, 10.5), Sample(11, 11))


def test_a_query_without_a_time_is_about_now(shared, connect):
    before = time.time()
    ((sample,),) = [one.samples for one in connect(shared).instant("time()")]
    assert before - 1e-3 <= sample.value <= time.time()


@settings(max_examples=50)
@given(value=st.text(min_size=1))
def test_any_text_comes_back_from_a_matcher(shared, value):
    """``absent`` has the labels that it was asked for."""
    prometheus = Prometheus(PrometheusSettings(shared.url))
    (found,) = prometheus.instant(f"absent(nothing{{{equal('label', value)}}})")
    prometheus.close()
    assert found.labels == {"label": value}


@settings(max_examples=50)
@given(value=st.text(min_size=1))
def test_any_text_is_a_pattern_for_itself(shared, value):
    """Prometheus reads the pattern, and takes one that has nothing but plain text for an equality."""
    prometheus = Prometheus(PrometheusSettings(shared.url))
    assert prometheus.instant(f"nothing{{{like('label', re.escape(value))}}}") == ()
    prometheus.close()


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("sum(", r"says: bad_data: invalid parameter .query.: 1:5: parse error: unclosed left parenthesis"),
        (
            "vector(1) * on() group_left() (vector(1) or label_replace(vector(1), 'a', 'b', '', ''))",
            "says: execution: ",
        ),
        ("quantile(2, vector(1))", "says: warning: PromQL warning: quantile value should be between 0 and 1, got 2"),
        ("'text'", "cannot be read: .*'string'.*'scalar', 'vector', 'matrix'"),
    ],
)
def test_what_prometheus_says_is_told(shared, connect, query, said):
    with pytest.raises(PrometheusError, match=said):
        connect(shared).instant(query)


def test_a_query_that_takes_too_long_is_ended_by_prometheus(shared, connect, monkeypatch):
    monkeypatch.setattr(client, "_SPARE_SECONDS", PATIENCE)  # a busy machine lets it notice late
    with pytest.raises(PrometheusError, match=r"says: (timeout: query timed out in|execution: context deadline) "):
        connect(shared, timeout_seconds=0.05).instant("sum_over_time(vector(1)[300d:1s])")


def test_a_url_may_have_a_prefix(start, connect):
    server = start(prefix="/of/the-lab")
    assert connect(server).instant("1", 1) == (Series({}, (Sample(1, 1),)),)
    elsewhere = Prometheus(PrometheusSettings(server.url.removesuffix("/of/the-lab")))
    with pytest.raises(PrometheusError, match="says: HTTP 404 Not Found: 404 page not found; check that the URL"):
        elsewhere.instant("1")


def test_a_prometheus_that_comes_back_is_asked_again(start, connect):
    server = start()
    prometheus = connect(server)
    assert prometheus.instant("1", 1)
    server.stop()
    with pytest.raises(PrometheusError, match="does not answer"):
        prometheus.instant("1")
    server.restart()
    assert prometheus.instant("1", 1)


def test_a_client_logs_in_by_a_password_over_tls(start, connect, authority, tmp_path):
    certificate, key = authority.sign("server", "IP:127.0.0.1")
    tls = {"cert_file": str(certificate), "key_file": str(key)}
    server = start(web={"tls_server_config": tls, "basic_auth_users": {"ann": PASSWORD_HASH}})
    password = tmp_path / "password"
    password.write_text(PASSWORD + "\n")
    login = {"ca_file": authority.certificate, "user": "ann", "password_file": password}

    prometheus = connect(server, **login)
    assert prometheus.instant("1", 1) == (Series({}, (Sample(1, 1),)),)
    password.write_text("hidden")
    with pytest.raises(PrometheusError, match=r"HTTP 401 Unauthorized: .*; check the token or the password") as error:
        prometheus.instant("1")
    assert "hidden" not in str(error.value)
    with pytest.raises(PrometheusError, match="HTTP 401"):
        connect(server, ca_file=authority.certificate).instant("1")

    other = Authority(tmp_path, "other")
    for trusted in ({"ca_file": other.certificate}, {"ca_file": None}):
        with pytest.raises(PrometheusError, match=r"has a TLS error: .*certificate verify failed"):
            connect(server, **login | trusted).instant("1")
    with pytest.raises(PrometheusError, match="No such file"):
        connect(server, ca_file=tmp_path / "none").instant("1")


def test_a_certificate_for_another_name_is_refused(start, connect, authority):
    certificate, key = authority.sign("server", "DNS:prometheus")
    server = start(web={"tls_server_config": {"cert_file": str(certificate), "key_file": str(key)}})
    with pytest.raises(PrometheusError, match=r"certificate is not valid for '127.0.0.1'"):
        connect(server, ca_file=authority.certificate).instant("1")


def test_a_client_logs_in_by_a_certificate(start, connect, authority):
    certificate, key = authority.sign("server", "IP:127.0.0.1")
    tls = {
        "cert_file": str(certificate),
        "key_file": str(key),
        "client_auth_type": "RequireAndVerifyClientCert",
        "client_ca_file": str(authority.certificate),
    }
    server = start(web={"tls_server_config": tls})
    mine, my_key = authority.sign("operator", "DNS:operator")
    trusting = {"ca_file": authority.certificate}
    known = connect(server, **trusting, client_certificate=mine, client_key=my_key)
    assert known.instant("1", 1) == (Series({}, (Sample(1, 1),)),)
    with pytest.raises(PrometheusError, match=r"has a TLS error|does not answer"):
        connect(server, **trusting).instant("1")
