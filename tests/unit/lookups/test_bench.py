"""The load of ``bench.lookups`` on a real server, and its judge, which finds every answer that the topic does not have."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb
import pyarrow as pa

from bench.lookups.answers import LookupFigures, judge_by
from bench.lookups.load import LookupAnswer, run
from millrace_jobs.lookups.keys import KeyColumn

from .tables import filled, served, text

KEYS = 20
VERSIONS = [(f"key-{number}", 3, 10 * number) for number in range(KEYS) if number % 3]


def judged(folder: Path, answers: Sequence[LookupAnswer], versions: Sequence[tuple[str, int, int]]) -> LookupFigures:
    file = folder / "answers.csv"
    file.write_text("".join(answer.line for answer in answers))
    keys, batches, values = zip(*versions, strict=True)
    with duckdb.connect() as connection:
        return judge_by(connection, [file], pa.table({"key": keys, "batch": batches, "n": values}))


def test_a_load_on_a_server_is_answered_as_its_table_has_it(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    store = filled(tmp_path / "store", {text(key=key): text(key=key, n=n) for key, _, n in VERSIONS}, batch=3)
    with served(tmp_path / "store", [KeyColumn("key", "string")]) as process:
        answers = run(process.url, rate=2_000, seconds=0.2, keys=KEYS)
    store.close()
    found = judged(tmp_path, answers, VERSIONS)
    assert (found.count, found.refused, found.wrong, found.batches) == (400, 0, 0, 1)
    assert 0 < found.rows < found.count
    assert 0 < found.p50 <= found.p99 <= found.longest


def test_what_is_not_in_the_topic_is_wrong(tmp_path: Path) -> None:
    versions = [("a", 2, 20), ("a", 5, 50), ("b", 5, 55)]
    right = [
        ("a", None, None),
        ("a", 1, None),
        ("a", 2, 20),
        ("a", 4, 20),
        ("a", 9, 50),
        ("b", 4, None),
        ("c", 9, None),
    ]
    wrong = [("a", 4, 50), ("a", 5, 20), ("a", 1, 20), ("b", 5, None), ("c", 9, 1)]
    answers = [LookupAnswer(key, batch, n, 200, 1.0) for key, batch, n in (*right, *wrong)]
    found = judged(tmp_path, [*answers, LookupAnswer("a", None, None, 503, 1.0)], versions)
    assert (found.count, found.refused, found.wrong) == (13, 1, 5)
