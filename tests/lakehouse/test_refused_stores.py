"""A store or a catalog that refuses, for tables that are written and read: one sentence, its class, no repetitions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructType

from lab.s3_server import S3Server
from lab.store_proxy import Disturbance
from millrace_api.errors import MillraceError, TransientError
from millrace_api.model.sources import SourceSpec
from millrace_api.model.status import FailureClass
from millrace_jobs.run.failures import attributed_to, class_of
from millrace_jobs.sources.connector import open_table

from .answers import answering
from .delta_tables import add
from .iceberg_snapshots import created, numbered
from .iceberg_tables import iceberg_sink
from .streamed import COLUMNS, opened
from .tables import FRESH, delta_sink

Fields = dict[str, Any]


class Columns:
    """Columns of results, of which a sink takes no rows in these tests."""

    schema = StructType().add("id", LongType()).add("city", StringType())

    def drop(self, *_: str) -> Columns:
        return self


def write(kind: str, fields: Fields, folder: Path) -> None:
    if kind == "delta":
        delta_sink(fields["path"], Columns()).prepare(FRESH)  # type: ignore[arg-type]
    else:
        iceberg_sink(fields, Columns()).prepare(FRESH)  # type: ignore[arg-type]


def stream(kind: str, fields: Fields, folder: Path) -> None:
    opened(kind, fields, folder).initial()


def read_whole(kind: str, fields: Fields, folder: Path) -> None:
    table = {"keys": ["id"], "static": True}
    spec = SourceSpec.model_validate({kind: fields, "schema": COLUMNS, "table": table})
    found = open_table("trips", spec, folder).read(None)
    assert found is not None
    list(found.records)


Use = Callable[[str, Fields, Path], None]
USES: dict[str, Use] = {"sink": write, "stream": stream, "static table": read_whole}


def disturbed(s3: S3Server, status: int, code: str) -> AbstractContextManager[None]:
    return s3.disturbed(lambda _: Disturbance(status=status, code=code))


REFUSALS: dict[str, tuple[str, Callable[[S3Server], AbstractContextManager[None]]]] = {
    "missing bucket": ("the bucket does not exist (NoSuchBucket", lambda _: nullcontext()),
    "wrong key": (
        "the login is refused (SignatureDoesNotMatch",
        lambda s3: disturbed(s3, 403, "SignatureDoesNotMatch"),
    ),
    "no permission": ("the login may not do that (AccessDenied", lambda s3: disturbed(s3, 403, "AccessDenied")),
    "expired token": ("the login has expired (ExpiredToken", lambda s3: disturbed(s3, 400, "ExpiredToken")),
}
"""What the error says, and how to have the store say it; a real wrong key is in ``test_delta_refusals``."""


@pytest.fixture
def store(shared_s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    for name, value in shared_s3.environment.items():
        monkeypatch.setenv(name, value)
    return shared_s3


def refusal(use: Use, kind: str, fields: Fields, folder: Path, part: FailureClass) -> str:
    """Return why a table is refused; it is an error of this part, and no repetition helps."""
    with pytest.raises(MillraceError) as raised, attributed_to(part):
        use(kind, fields, folder)
    assert not isinstance(raised.value, TransientError), raised.value
    assert class_of(raised.value) is part
    text = str(raised.value)
    assert "\n" not in text
    assert "; " in text, "it says what to do"
    return text


CASES = [
    (kind, refused, name)
    for kind in ("delta", "iceberg")
    for refused in REFUSALS
    for name in USES
    if kind == "delta" or refused != "missing bucket" or name == "sink"  # its metadata are in the bucket
]


@pytest.mark.parametrize(("kind", "refused", "name"), CASES)
def test_a_refusal_of_a_store_is_one_sentence_with_its_class(
    store: S3Server, tmp_path: Path, kind: str, refused: str, name: str
) -> None:
    said, refusing = REFUSALS[refused]
    bucket = "no-such-bucket" if refused == "missing bucket" else "lake"
    place = f"s3a://{bucket}/refused/{tmp_path.name}"
    fields: Fields = {"path": place}
    if kind == "iceberg":
        catalog = {"file": str(tmp_path / "catalog.db")}
        fields = {"catalog": catalog, "table": "sales.trips", "location": place}
    if bucket == "lake":
        add(place, 0) if kind == "delta" else created(fields).append(numbered(0))
    part = FailureClass.SINK if name == "sink" else FailureClass.SOURCE
    with refusing(store):
        text = refusal(USES[name], kind, fields, tmp_path, part)
    assert f"because {said}" in text
    assert text.startswith(f"spec.sink.{kind}" if name == "sink" else f"spec.sources.trips.{kind}")
    if bucket == "lake" and name != "sink":
        USES[name](kind, fields, tmp_path)


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, "the catalog refuses the login"),
        (419, "the catalog refuses the login"),  # the status that the interface has for a token that has expired
        (403, "the catalog does not allow it"),
    ],
)
@pytest.mark.parametrize("name", USES)
def test_a_refusal_of_a_catalog_is_one_sentence_with_its_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, status: int, said: str
) -> None:
    monkeypatch.setenv("TOKEN", "hunter2")
    part = FailureClass.SINK if name == "sink" else FailureClass.SOURCE
    answer = f'{{"error": {{"message": "no", "type": "x", "code": {status}}}}}'
    with answering((status, answer)) as (url, _):
        fields = {"table": "a.b", "catalog": {"rest": {"uri": url, "token": {"env": "TOKEN"}}}}
        text = refusal(USES[name], "iceberg", fields, tmp_path, part)
    assert f"because {said}" in text
    assert "hunter2" not in text
