"""Files alone: the source reads what ``writers`` wrote, without Spark, so that a minute tries thousands of them."""

from __future__ import annotations

import random
import re
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from millrace_api.errors import MillraceError
from millrace_api.model.sources import SourceSpec
from millrace_jobs.sources.connector import open_source

from .judging import normal
from .tables import ERAS, Row, Table, TableMaker
from .values import KINDS, SECOND, plain_values
from .writers import FORMATS, Spelling, draw_spelling, write_table


@dataclass(frozen=True)
class Files:
    """Files of one table, and the source that reads them with so many replicas."""

    name: str
    table: Table
    spelling: Spelling
    replicas: int

    @property
    def writer(self) -> str:
        """The format, for Parquet with what its writer does."""
        return self.spelling.format + (f" {self.spelling.parquet}" if self.spelling.format == "parquet" else "")

    def spec(self, folder: Path) -> SourceSpec:
        files = {"path": str(folder / "in"), "format": self.spelling.format, **self.spelling.options}
        source = {"files": files, "schema": self.table.schema}
        source |= {"corruptRecords": {"policy": "Drop"}} if self.spelling.broken else {}
        return SourceSpec.model_validate(source | {"timestampFormat": self.spelling.timestamps})


def draw_files(name: str) -> Files:
    """Return the files that the name stands for."""
    chance = random.Random(name)
    spelling = draw_spelling(chance, chance.choice(FORMATS))
    kinds = [kind for kind in KINDS.values() if spelling.holds(kind)]
    values = [(f"x{index}", chance.choice(kinds)) for index in range(chance.randrange(1, 8))]
    maker = TableMaker(chance, ERAS[chance.choice(list(ERAS))], SECOND, (), spelling.texts, oddity=0.6)
    return Files(name, maker.table("t", values, at_once=True), spelling, chance.choice([1, 1, 2, 5]))


def difference(files: Files, folder: Path) -> tuple[str, str] | None:
    """Write the files, read them, and return what is wrong: its sort, and an example."""
    write_table(files.table, files.spelling, folder / "in")
    try:
        source = open_source("t", files.spec(folder), folder / "state", folder / "cache")
        end = source.latest(source.initial(), everything=True)
        parts = [
            part for piece in source.slices(source.initial(), end, files.replicas) for part in source.read(piece, "0")
        ]
    except MillraceError as error:
        message = str(error).replace(str(folder), "")
        return f"files, {files.writer}, refused: {_reason(message)}", message
    except Exception:
        return f"files, {files.writer}, crashed", traceback.format_exc()
    read = pa.Table.from_batches([part for part in parts if isinstance(part, pa.RecordBatch)], source.schema)
    found = Counter(map(normal, zip(*map(plain_values, read.columns), strict=True)))
    wanted = Counter(map(normal, files.table.rows))
    missing, extra = list((wanted - found).elements()), list((found - wanted).elements())
    if not missing and not extra:
        return None
    return _described(files, missing, extra)


def _reason(message: str) -> str:
    """Return the end of a message, which says why, without values."""
    return re.sub(r"'[^']*'|\".*?\"|x\d|\d+", "#", message.partition("; correct")[0].rpartition("decode")[2])[-90:]


def _described(files: Files, missing: list[Row], extra: list[Row]) -> tuple[str, str]:
    """Return the types of the columns that differ in the most similar records, and these."""
    format, counts = files.writer, f"{len(missing)} missing, {len(extra)} extra"
    if not missing or not extra:
        return f"files, {format}: number of records", f"{counts}, such as {(missing or extra)[0]}"
    one = missing[0]
    other = max(extra, key=lambda row: sum(a == b for a, b in zip(one, row, strict=True)))
    pairs = [(c.kind.spark, a, b) for c, a, b in zip(files.table.columns, one, other, strict=True) if a != b]
    kinds = ", ".join(sorted({kind for kind, _, _ in pairs}))
    return f"files, {format}: {kinds}", f"{counts}, such as {pairs}"
