"""A program for ``test_own_code``: use a wheel and a jar on executors that are processes of their own."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from code_packages import digest, wheel, write
from millrace_api.model.code import CodeFile
from millrace_jobs.own_code.own_code import installed
from millrace_jobs.session import local_session

folder = Path(sys.argv[1])
modules = {
    "routes/__init__.py": "",
    "routes/numbers.py": "def sevenfold(n):\n    return 7 * n\n",
    "routes/data.csv": "a,b",
}
given = [
    write(folder, "routes-1.0-py3-none-any.whl", wheel(modules)),
    {"uri": "file:functions.jar", "sha256": digest((folder / "functions.jar").read_bytes())},
]
(folder / "kept").mkdir()
code = installed([CodeFile.model_validate(each) for each in given], folder, folder / "kept")
for each in given:
    (folder / each["uri"].removeprefix("file:")).unlink()
settings = {"spark.master": "local-cluster[2,1,512]", "spark.executor.memory": "512m"}
(folder / "work").mkdir()
spark = local_session("code", 2, settings | code.settings() | code.executor_settings(), folder / "work", quiet=True)
code.add_to_workers(spark.sparkContext)


def use(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return what the package makes of numbers, its data, and whether it is in the executor's folder."""
    from routes import numbers

    place = Path(numbers.__file__)
    for batch in batches:
        results = [numbers.sevenfold(each) for each in batch.column(0).to_pylist()]
        data = [(place.parent / "data.csv").read_text()] * len(results)
        own = [place.is_relative_to(Path.cwd())] * len(results)
        yield pa.RecordBatch.from_pydict({"n": results, "data": data, "own": own})


rows = spark.range(4, numPartitions=4).mapInArrow(use, "n LONG, data STRING, own BOOLEAN").collect()
greetings = spark.range(2, numPartitions=2).selectExpr(
    "java_method('org.example.Functions', 'greet', CAST(id AS STRING)) AS said"
)
said = {
    "numbers": sorted(row.n for row in rows),
    "data": sorted({row.data for row in rows}),
    "own folders": all(row.own for row in rows),
    "greetings": sorted(row.said for row in greetings.collect()),
}
spark.stop()
print(json.dumps(said))
