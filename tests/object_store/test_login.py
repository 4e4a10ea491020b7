"""The login that a query names: keys in files, which a rotated Secret replaces while clients use them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.s3_server import ACCESS, SECRET, S3Server
from millrace_api.errors import MillraceError
from millrace_api.model.s3 import S3Spec
from millrace_jobs.stores import clients, login
from millrace_jobs.stores.objects import ObjectPath
from millrace_jobs.stores.spark import use

KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
PROFILE = Path(login.__file__).with_name("s3.aws-config")


@pytest.fixture
def given(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> S3Spec:
    """The server and its keys in files, as a query names them, where the environment names nothing."""
    for name in s3.environment:
        monkeypatch.delenv(name)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    files = {"access_key_id": ACCESS, "secret_access_key": SECRET}
    for name, key in files.items():
        (tmp_path / name).write_text(f"{key}\n", encoding="utf-8")
    keys = {name: {"file": str(tmp_path / name)} for name in files}
    return S3Spec.model_validate({"endpoint": s3.url, "region": "us-east-1"} | keys)


def test_the_keys_in_files_are_used_and_those_that_replace_them(
    given: S3Spec, place: ObjectPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(given)
    assert not set(os.environ) & set(KEYS)
    place.write_bytes(b"one")
    monkeypatch.setattr(login, "VALID", -login.VALID)  # what is read is out of date at once
    clients.s3_client.cache_clear()
    (tmp_path / "secret_access_key").write_text("wrong", encoding="utf-8")
    with pytest.raises(OSError, match="SignatureDoesNotMatch"):
        place.read_bytes()
    (tmp_path / "secret_access_key").write_text(SECRET, encoding="utf-8")
    assert place.read_bytes() == b"one"


def test_the_process_that_the_profile_names_prints_the_login(given: S3Spec) -> None:
    use(given)
    _, line = PROFILE.read_text(encoding="utf-8").splitlines()
    environment = {**os.environ, "MILLRACE_PYTHON": sys.executable}
    said = subprocess.run(["/bin/sh", "-c", line.partition(" = ")[2]], capture_output=True, check=True, env=environment)
    found = json.loads(said.stdout)
    assert (found["AccessKeyId"], found["SecretAccessKey"], found["Version"]) == (ACCESS, SECRET, 1)


def test_a_key_that_cannot_be_read_is_named(given: S3Spec, tmp_path: Path) -> None:
    (tmp_path / "secret_access_key").unlink()
    with pytest.raises(MillraceError, match=r"spec\.s3\.secretAccessKey: the secret access key of S3 cannot be read"):
        use(given)
