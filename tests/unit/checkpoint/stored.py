"""A checkpoint with state, which is written without Spark."""

from __future__ import annotations

import json
import random
import zipfile
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import pytest

from builders import a_query
from millrace_jobs.checkpoint import snapshot_manifest, snapshots
from millrace_jobs.checkpoint.checkpoint import Checkpoint
from millrace_jobs.places import write_durably
from spark_logs import Log, offset


class Stored:
    """A checkpoint whose state is written as RocksDB's provider does: what batch N has put into it is its number."""

    def __init__(self, root: Path) -> None:
        self.root, self.batches = root, 0
        self._changes: list[str] = []
        checkpoint = Checkpoint(root)
        checkpoint.open(a_query())
        checkpoint.close()
        self._log = Log(checkpoint)
        self.store = root / "spark" / "state" / "0" / "0"

    def begin(self, attempt: int = 0) -> None:
        """Begin the next batch, and write its state; an attempt may follow one that was cut off."""
        self._log.begin(self.batches, offset(self.batches))
        self._changes[self.batches :] = [f"{self.batches} {attempt}"]
        write_durably(self.store / f"{self.batches + 1}.changelog", self._changes[-1].encode())
        write_durably(self.root / "sources" / "trips" / "files.jsonl", b"seen\n" * (self.batches + 1))

    def commit(self) -> None:
        self._log.commit(self.batches)
        self.batches += 1

    def upload(self) -> None:
        """Write the whole state of the newest version, as maintenance does."""
        if self.batches:
            content = "".join(f"{change}\n" for change in self._changes[: self.batches])
            sst = f"{self.batches:06d}-{random.randrange(10**9)}.sst"
            write_durably(self.store / "SSTs" / sst, content.encode())
            archive = BytesIO()
            with zipfile.ZipFile(archive, "w") as written:
                written.writestr("metadata", "v1\n" + json.dumps({"sstFiles": [{"dfsSstFileName": sst}]}))
            write_durably(self.store / f"{self.batches}.zip", archive.getvalue())

    def clean(self) -> None:
        """Remove versions and entries of the logs that a restart at the last batch does not need."""
        wholes = sorted(int(file.stem) for file in self.store.glob("*.zip"))
        for file in [*self.store.glob("*.changelog"), *self.store.glob("*.zip")]:
            if wholes and int(file.stem) < wholes[-1] + (file.suffix == ".changelog"):
                file.unlink()
        for log in ("offsets", "commits"):
            for file in (self.root / "spark" / log).glob("[0-9]*"):
                if int(file.name) < self.batches - 2:
                    file.unlink()


@contextmanager
def dying_after(written, monkeypatch):
    """A process that dies once it has written so many files of a snapshot or a checkpoint made of one."""
    left, real = iter([True] * written), snapshots.write_durably

    def dying(*arguments):
        if not next(left, False):
            raise KeyboardInterrupt
        real(*arguments)

    with monkeypatch.context() as patched:
        for module in (snapshots, snapshot_manifest):
            patched.setattr(module, "write_durably", dying)
        with pytest.raises(KeyboardInterrupt):
            yield
