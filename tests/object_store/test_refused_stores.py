"""A store that cannot be used, for checkpoints, sources and sinks alike: one sentence, its class, and no repetitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
from pyspark.sql.types import LongType, StructType

from builders import a_query
from lab.s3_server import S3Server
from lab.store_proxy import Disturbance
from millrace_api.errors import MillraceError, TransientError
from millrace_api.model.sinks import FilesSinkSpec
from millrace_api.model.status import FailureClass
from millrace_jobs.checkpoint.checkpoint import Checkpoint
from millrace_jobs.run.failures import attributed_to, class_of
from millrace_jobs.run.inputs import open_sources
from millrace_jobs.sinks.base import LastBatch
from millrace_jobs.sinks.files.object_sink import ObjectFilesSink
from millrace_jobs.stores import clients
from millrace_jobs.stores.objects import ObjectPath

from .stored_inputs import put


def use_checkpoint(place: ObjectPath, folder: Path) -> None:
    checkpoint = Checkpoint(place)
    checkpoint.open(a_query())
    checkpoint.close()


def use_source(place: ObjectPath, folder: Path) -> None:
    files = {"path": f"{place}/*.json", "format": "json"}
    query = a_query("spec", "sources", value={"s": {"files": files, "schema": "n BIGINT"}})
    open_sources(query.spec, folder / "state", folder)


def use_sink(place: ObjectPath, folder: Path) -> None:
    spec = FilesSinkSpec.model_validate({"path": f"{place}/results"})
    sink = ObjectFilesSink(spec, StructType().add("n", LongType()), "a", updates=False)
    with attributed_to(FailureClass.SINK):
        sink.prepare(LastBatch(None, None))


USES = {
    FailureClass.STORE: use_checkpoint,
    FailureClass.SOURCE: use_source,
    FailureClass.SINK: use_sink,
}


@contextmanager
def wrong_key(s3: S3Server, patch: pytest.MonkeyPatch) -> Iterator[None]:
    patch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    clients.s3_client.cache_clear()
    try:
        yield
    finally:
        clients.s3_client.cache_clear()


REFUSALS: dict[str, tuple[str, Callable[[S3Server, pytest.MonkeyPatch], object]]] = {
    "missing bucket": ("NoSuchBucket", lambda s3, patch: nullcontext()),
    "wrong key": ("SignatureDoesNotMatch", wrong_key),
    "no permission": ("AccessDenied", lambda s3, patch: s3.disturbed(lambda _: Disturbance(status=403))),
    "expired token": (
        "ExpiredToken",
        lambda s3, patch: s3.disturbed(lambda _: Disturbance(status=400, code="ExpiredToken")),
    ),
}
"""What the store says, and how to have it say so."""


@pytest.mark.parametrize(("failure", "use"), USES.items(), ids=["checkpoint", "source", "sink"])
@pytest.mark.parametrize("kind", REFUSALS)
def test_a_refusal_of_a_store_is_one_sentence_with_its_class(
    place: ObjectPath,
    s3: S3Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    failure: FailureClass,
    use: Callable[[ObjectPath, Path], None],
) -> None:
    put(place, "a.json", b'{"n": 1}\n')
    said, refusing = REFUSALS[kind]
    where = ObjectPath("s3a", "no-such-bucket", place.key) if kind == "missing bucket" else place
    with refusing(s3, monkeypatch), pytest.raises(MillraceError) as raised:  # type: ignore[attr-defined]
        use(where, tmp_path / "refused")
    text = str(raised.value)
    assert said in text
    assert str(where) in text
    assert "\n" not in text
    assert "; " in text, "it says what to do"
    assert "hunter2" not in text
    assert not isinstance(raised.value, TransientError), "no repetition helps before someone has acted"
    assert class_of(raised.value) is failure
    monkeypatch.undo()
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    use(place, tmp_path / "accepted")
