"""Downloads of own code: what arrives is what its digest says, and no server can hold a start up."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from code_packages import digest
from lab.authority import make_authority
from millrace_api.errors import MillraceError, TransientError
from millrace_api.model.code import CodeFile
from millrace_api.model.confinement import Confinement
from millrace_api.model.status import FailureClass
from millrace_jobs.confinement import VARIABLE
from millrace_jobs.own_code import download
from millrace_jobs.own_code.download import Budget, fetch

from .code_server import CONTENT, code_server

OTHER = "0" * 64


@pytest.fixture(scope="module")
def servers():
    with code_server() as first, code_server() as second:
        first.elsewhere = second.url
        yield first


@pytest.fixture
def target(tmp_path):
    return tmp_path / "fetched"


IN_CONFIG_MAP = {"name": "fares-1", "key": "fares.py"}


def fetched(place, target, *, sha256=None, budget=None):
    """Fetch a file from a URI or a ConfigMap; return its content."""
    where = {"uri": place} if isinstance(place, str) else {"configMap": place}
    code = CodeFile.model_validate(where | {"sha256": sha256 or digest(CONTENT)})
    fetch(code, target, target.parent, budget or Budget(), "spec.code[0]")
    return target.read_bytes()


def refused(place, target, failure=FailureClass.CONFIG, **how):
    """Fetch a file in vain; return what is said, which is never retried."""
    with pytest.raises(MillraceError) as caught:
        fetched(place, target, **how)
    assert not isinstance(caught.value, TransientError)
    assert caught.value.failure is failure
    assert not target.exists()
    return str(caught.value)


def unanswered(uri, target, budget):
    """Fetch a file in vain; return what is said, which is retried."""
    with pytest.raises(TransientError) as caught:
        fetched(uri, target, budget=budget)
    assert caught.value.failure is FailureClass.CODE
    return str(caught.value)


@pytest.mark.parametrize("path", ["sound", "busy", "cut", "near", "far"])
def test_a_file_arrives_also_at_the_second_attempt_and_from_where_the_server_refers_to(servers, target, path):
    before = servers.asked[f"/{path}/routes.whl"]
    assert fetched(f"{servers.url}/{path}/routes.whl", target) == CONTENT
    assert servers.asked[f"/{path}/routes.whl"] - before == (2 if path in ("busy", "cut") else 1)


def test_a_file_with_another_digest_is_not_kept_and_not_asked_for_again(servers, target):
    uri = f"{servers.url}/sound/other.whl"
    assert refused(uri, target, sha256=OTHER) == (
        f"spec.code[0].sha256: {uri} has the digest {digest(CONTENT)}, and not {OTHER}; "
        "write this digest if it is that of the file you mean, or put that file back"
    )
    assert servers.asked["/sound/other.whl"] == 1


def test_a_file_that_does_not_exist_is_named(servers, target):
    uri = f"{servers.url}/missing/routes.whl"
    said = f"spec.code[0].uri: there is no {uri}: HTTP 404 Not Found; put routes.whl there, or write where it is"
    assert refused(uri, target, FailureClass.CODE) == said
    assert refused("file:routes.whl", target, FailureClass.CODE) == (
        f"spec.code[0].uri: there is no file {target.parent}/routes.whl; put routes.whl there, or write where it is"
    )


def test_a_file_that_may_not_be_read_is_named(servers, target):
    uri = f"{servers.url}/secret/routes.whl"
    said = refused(uri, target, FailureClass.CODE)
    assert said.startswith(f"spec.code[0].uri: {uri} may not be read: HTTP 403 Forbidden; let the server give it out")


def test_a_server_that_is_down_may_come_back(target):
    with code_server() as server:
        uri = f"{server.url}/sound/routes.whl"
    said = unanswered(uri, target, Budget(seconds=0.8))
    assert said.startswith(f"spec.code[0].uri: {uri} cannot be fetched: [Errno 111] Connection refused; check the URI")


@pytest.mark.parametrize("path", ["headers", "trickle"])
def test_a_slow_server_holds_nothing_up(servers, target, path):
    uri = f"{servers.url}/{path}/routes.whl"
    assert unanswered(uri, target, Budget(seconds=0.5)) == (
        f"spec.code[0].uri: {uri} did not arrive within the 0.5 s that all code may take; "
        "check that its server is fast enough, or put the code into an image"
    )


@pytest.mark.parametrize("path", ["endless", "large"])
def test_a_file_without_an_end_is_given_up(servers, target, path):
    uri = f"{servers.url}/{path}/routes.whl"
    said = refused(uri, target, budget=Budget(bytes=1 << 20))
    assert said == f"spec.code[0].uri: the code is larger than 256 MiB with {uri}; put what is large into an image"


def test_all_files_share_a_budget(servers, target):
    budget, uri = Budget(bytes=2 * len(CONTENT) - 1), f"{servers.url}/busy/shared.whl"
    assert fetched(uri, target, budget=budget) == CONTENT
    assert budget.bytes == len(CONTENT) - 1  # the failed attempt does not count
    assert "larger than" in refused(uri, target, budget=budget)


def test_a_server_cannot_refer_to_a_disk_or_out_of_a_policy(servers, target, monkeypatch):
    said = refused(f"{servers.url}/disk/routes.whl", target)
    assert f"{servers.url}/disk/routes.whl cannot be fetched: HTTP 302 Found - Redirection to url 'file:" in said
    monkeypatch.setenv(VARIABLE, Confinement(folders=(), logins=(), functions=()).to_json())
    said = refused(f"{servers.url}/far/routes.whl", target)
    assert "HTTP 302 it refers to http://127.0.0.1; write the URI that it refers to, if that is allowed" in said
    assert fetched(f"{servers.url}/near/routes.whl", target) == CONTENT


def test_a_certificate_has_to_be_trusted_and_nothing_leads_to_plain_http(servers, target, tmp_path, monkeypatch):
    authority = make_authority(tmp_path)
    with code_server(authority / "server.pem") as secured:
        uri = f"{secured.url}/sound/routes.whl"
        said = refused(uri, target, FailureClass.CODE)
        assert said.startswith(f"spec.code[0].uri: the certificate of {secured.url[8:]} is not trusted: ")
        monkeypatch.setenv("SSL_CERT_FILE", str(authority / "ca.pem"))
        assert fetched(uri, target) == CONTENT
        target.unlink()
        secured.elsewhere = servers.url
        assert "HTTP 302 it refers to http://127.0.0.1" in refused(f"{secured.url}/far/routes.whl", target)


def test_a_file_of_this_machine_is_beside_the_query_and_never_a_pipe(tmp_path, target):
    (tmp_path / "a b.whl").write_bytes(CONTENT)
    os.mkfifo(tmp_path / "pipe.whl")
    assert fetched("file:a%20b.whl", target) == CONTENT
    assert fetched(f"file://{tmp_path}/a%20b.whl", target) == CONTENT
    assert "there is no file" in refused("file:pipe.whl", target, FailureClass.CODE)


def test_a_confined_query_takes_no_file_of_its_pod(tmp_path, target, monkeypatch):
    (tmp_path / "a.whl").write_bytes(CONTENT)
    monkeypatch.setenv(VARIABLE, Confinement(folders=("/data",), logins=(), functions=()).to_json())
    with pytest.raises(MillraceError, match="is not on a volume that the query mounts for data"):
        fetched("file:a.whl", target)


@pytest.fixture
def mounted(tmp_path, monkeypatch):
    """The key of a ConfigMap as a node gives it to a pod: a link to a file that can be exchanged."""
    folder = tmp_path / "mounted" / "fares-1"
    (folder / "..data").mkdir(parents=True)
    (folder / "..data" / "fares.py").write_bytes(CONTENT)
    (folder / "fares.py").symlink_to(Path("..data") / "fares.py")
    monkeypatch.setattr(download, "_MOUNTED", tmp_path / "mounted")
    return folder / "..data" / "fares.py"


def test_a_key_of_a_config_map_is_read_where_the_pod_has_it_also_within_a_policy(mounted, target, monkeypatch):
    monkeypatch.setenv(VARIABLE, Confinement(folders=(), logins=(), functions=()).to_json())
    assert fetched(IN_CONFIG_MAP, target) == CONTENT


def test_a_config_map_that_has_changed_is_refused(mounted, target):
    mounted.write_bytes(b"changed")
    assert refused(IN_CONFIG_MAP, target) == (
        f"spec.code[0].sha256: fares.py of ConfigMap fares-1 has the digest {digest(b'changed')}, and not "
        f"{digest(CONTENT)}; write this digest if it is that of the file you mean, or put that file back"
    )


@pytest.mark.parametrize("place", [IN_CONFIG_MAP | {"name": "others"}, IN_CONFIG_MAP | {"key": "others.py"}])
def test_a_config_map_or_a_key_that_does_not_exist_is_named(mounted, target, place):
    assert refused(place, target, FailureClass.CODE) == (
        f"spec.code[0].configMap: the namespace has no ConfigMap {place['name']} with the key {place['key']}; "
        "make it, or write another name or key"
    )


def test_on_a_laptop_the_file_beside_the_query_takes_the_place_of_the_config_map(tmp_path, target):
    assert refused(IN_CONFIG_MAP, target, FailureClass.CODE) == (
        f"spec.code[0].configMap: this machine has no ConfigMap fares-1, and no file {tmp_path}/fares.py in its place; "
        "put fares.py there, or write uri: file:PATH for this machine"
    )
    (tmp_path / "fares.py").write_bytes(CONTENT)
    assert fetched(IN_CONFIG_MAP, target) == CONTENT
    assert "has the digest" in refused(IN_CONFIG_MAP, target, sha256=OTHER)
