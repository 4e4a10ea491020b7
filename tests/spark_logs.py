"""Logs as Spark writes them into a checkpoint, with their checksums."""

import json
import struct
import zlib

from millrace_jobs.plan.control import Pin


def offset(position, epoch=1, name="trips"):
    pin = Pin(epoch, "hash", 2, 4).to_json()
    return {"source": name, "position": {"files": position}, "pin": pin, "waiting": 0}


def with_checksums(path, text):
    """Return a file and its checksum file, as Hadoop's local file system has it: a CRC-32 of each 512 bytes."""
    content = text.encode()
    path.write_bytes(content)
    sums = [zlib.crc32(content[at : at + 512]) for at in range(0, len(content), 512)]
    path.with_name(f".{path.name}.crc").write_bytes(struct.pack(f">4sI{len(sums)}I", b"crc\0", 512, *sums))


class Log:
    """One of Spark's own files: a version, one line of JSON, and in an offset file a line per source."""

    def __init__(self, checkpoint):
        self._spark = checkpoint.spark

    def begin(self, batch, *offsets, **settings):
        lines = ["v1", json.dumps({"batchWatermarkMs": 1000 * batch, **settings})]
        self._write("offsets", batch, [*lines, *("-" if o is None else json.dumps(o) for o in offsets)])

    def commit(self, batch):
        self._write("commits", batch, ["v1", json.dumps({"nextBatchWatermarkMs": 1000 * batch + 500})])

    def _write(self, log, batch, lines):
        folder = self._spark / log
        folder.mkdir(parents=True, exist_ok=True)
        with_checksums(folder / str(batch), "\n".join(lines))
        with_checksums(self._spark / "metadata", '{"id": "4955fca9"}')
