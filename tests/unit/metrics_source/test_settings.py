import math
from pathlib import Path

import pytest

from millrace_api.errors import MillraceError
from millrace_operator.metrics_source.settings import PrometheusSettings

FILE = Path("file")


def settings(url="https://prometheus:9090", **changes):
    return PrometheusSettings(url, **changes)


@pytest.mark.parametrize(
    "url",
    ["http://prometheus", "https://prometheus:9090/", "http://10.0.0.1:80/a/b", "https://[::1]:9090/prefix/"],
)
def test_urls_of_servers_are_taken(url):
    assert settings(url).url == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "prometheus:9090",
        "/prometheus",
        "ftp://prometheus",
        "file:///etc/passwd",
        "http://",
        "http:///path",
        "http://prometheus:port",
        "http://prometheus:0",
        "http://prometheus:99999",
        "http://[::1",
        "http://pro metheus",
        "http://prometheus\n",
        "http://prométhée",
    ],
)
def test_other_urls_are_quoted_with_what_to_write_instead(url):
    with pytest.raises(MillraceError, match="http://HOST:PORT") as error:
        settings(url)
    assert url in str(error.value) or repr(url) in str(error.value)


@pytest.mark.parametrize(
    "url",
    [
        "https://user:hidden@prometheus",
        "https//user:hidden@prometheus",
        "ftp://hidden@prometheus:port",
        "https://prometheus/?token=hidden",
        "https://prometheus/#hidden",
    ],
)
def test_credentials_in_a_url_are_refused_and_not_told(url):
    with pytest.raises(MillraceError, match="credentials, a query or a fragment") as error:
        settings(url)
    assert "hidden" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"client_key": FILE}, "client_key: there is a key without a certificate"),
        ({"url": "http://prometheus", "ca_file": FILE}, "the URL is not https"),
        ({"url": "http://prometheus", "client_certificate": FILE}, "the URL is not https"),
        ({"user": "ann"}, "a user name and a password file belong together"),
        ({"password_file": FILE}, "a user name and a password file belong together"),
        ({"user": "ann:b", "password_file": FILE}, '"ann:b" is not a user name'),
        ({"user": "", "password_file": FILE}, '"" is not a user name'),
        ({"token_file": FILE, "user": "ann", "password_file": FILE}, "both a token and a password"),
        ({"timeout_seconds": 0}, "0 is not a timeout"),
        ({"timeout_seconds": math.nan}, "nan is not a timeout"),
        ({"timeout_seconds": math.inf}, "inf is not a timeout"),
    ],
)
def test_what_cannot_work_is_refused(changes, said):
    with pytest.raises(MillraceError) as error:
        settings(**changes)
    assert said in str(error.value)


def test_all_problems_are_told_at_once():
    with pytest.raises(MillraceError) as error:
        settings("ftp://prometheus", client_key=FILE, user="ann", timeout_seconds=-1)
    assert [problem.field for problem in error.value.problems] == ["url", "client_key", "user", "timeout_seconds"]
