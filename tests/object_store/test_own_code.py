"""Own code in S3: fetched by the login that a query names, and what is said where it cannot be."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from code_packages import entry, wheel
from lab.s3_server import ACCESS, BUCKET, SECRET, S3Server
from lab.store_proxy import Disturbance
from millrace_api.errors import MillraceError, TransientError
from millrace_api.model.code import CodeFile
from millrace_api.model.s3 import S3Spec
from millrace_api.model.status import FailureClass
from millrace_jobs.own_code.download import Budget, fetch
from millrace_jobs.own_code.own_code import installed
from millrace_jobs.stores import clients
from millrace_jobs.stores.objects import ObjectPath
from millrace_jobs.stores.spark import using

CONTENT = wheel({"routes.py": "N = 1\n", "routes.bin": os.urandom(9 << 20)})
"""More than one request for an object brings."""


@pytest.fixture
def stored(place: ObjectPath) -> CodeFile:
    """A wheel in the store."""
    uri = f"{place}/routes-1.0+local.1-py3-none-any.whl"
    ObjectPath.of_file(uri).write_bytes(CONTENT)
    return CodeFile.model_validate(entry(uri, CONTENT))


def refused(code: CodeFile, folder: Path, budget: Budget | None = None) -> MillraceError:
    with pytest.raises(MillraceError) as caught:
        fetch(code, folder / "fetched", folder, budget or Budget(), "spec.code[0]")
    assert caught.value.failure is FailureClass.CODE
    assert not (folder / "fetched").exists()
    return caught.value


def test_code_comes_by_the_login_that_the_query_names(
    s3: S3Server, stored: CodeFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in s3.environment:
        monkeypatch.delenv(name)
    keys = {"accessKeyId": "access", "secretAccessKey": "secret"}
    for name, key in {"access": ACCESS, "secret": SECRET}.items():
        (tmp_path / name).write_text(key)
    named: dict[str, Any] = {name: {"file": str(tmp_path / file)} for name, file in keys.items()}
    with using(S3Spec.model_validate({"endpoint": s3.url, "region": "us-east-1"} | named)):
        found = installed([stored], tmp_path, tmp_path)
    assert found.packages is not None
    assert {each.name for each in found.packages.iterdir()} == {"routes.py", "routes.bin", "routes-1.0.dist-info"}


def test_an_object_that_does_not_exist_is_named(s3: S3Server, stored: CodeFile, tmp_path: Path) -> None:
    for bucket in (BUCKET, "nobucket"):
        other = stored.model_copy(update={"uri": f"s3a://{bucket}/none/routes.whl"})
        assert str(refused(other, tmp_path)) == (
            f"spec.code[0].uri: there is no object s3a://{bucket}/none/routes.whl; "
            "put routes.whl there, or write where it is"
        )


def test_a_login_that_may_not_read_is_named(
    s3: S3Server, stored: CodeFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    clients.s3_client.cache_clear()
    error = refused(stored, tmp_path)
    clients.s3_client.cache_clear()
    assert not isinstance(error, TransientError)
    assert f"spec.code[0].uri: {stored.uri} may not be read: " in str(error)
    assert str(error).endswith("; check spec.s3 or the login of the environment, and that it may read there")


def test_a_store_that_is_slow_holds_nothing_up_and_may_come_back(
    s3: S3Server, stored: CodeFile, tmp_path: Path
) -> None:
    with s3.disturbed(lambda _: Disturbance(seconds=5.0)):
        error = refused(stored, tmp_path, Budget(seconds=1.0))
    assert isinstance(error, TransientError)
    assert "did not arrive within the 1 s that all code may take" in str(error)
    fetch(stored, tmp_path / "again", tmp_path, Budget(), "spec.code[0]")
    assert (tmp_path / "again").read_bytes() == CONTENT
