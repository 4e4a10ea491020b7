"""Which of Spark's files a query needs to go on after a committed batch.

Spark writes the state of a batch as version ``batch + 1`` of each store: a change (``VERSION.changelog`` or ``.delta``)
and, now and then, all of it (``VERSION.zip`` or ``.snapshot``). A version is loaded from the newest whole one up to it
and the changes since. A zip names the files of RocksDB that it needs, which lie in ``SSTs`` and ``logs`` and are shared
by versions. Spark removes old versions while a query runs, but not the stores of partitions that a repartition to fewer
has left over.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import PurePosixPath

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.checkpoint.spark_folder import PARTITIONS, SparkLog, damaged
from millrace_jobs.places import Place, files_below, within

_VERSION = re.compile(r"(\d+)\.(?:zip|snapshot|changelog|delta)")
_WHOLE = (".zip", ".snapshot")
_VERSION_WITH_ID = re.compile(r"(\d+)_.+\.(?:zip|snapshot|changelog|delta)")
"""Names under ``spark.sql.streaming.stateStore.checkpointFormatVersion`` 2; the commit log has the ids."""

_SHARED = ("SSTs", "logs")
_LOGS = ("offsets", "commits")


def files_at(spark: Place, batch: int) -> list[str]:
    """Return the names, from ``spark`` on, of the files from which a query goes on after a committed batch.

    Raises:
        FileNotFoundError: one of them is not there, as when Spark has just removed it.
        MillraceError: a file that names others is damaged.
        OSError: the place cannot be read.
    """
    found = ["metadata", *(f"{log}/{number}" for log in _LOGS for number in range(max(0, batch - 1), batch + 1))]
    stores: dict[str, list[str]] = defaultdict(list)
    for name, _ in files_below(spark / "state"):
        path = PurePosixPath("state", name)
        if path.name.startswith("."):
            continue  # checksums, and files that are being written
        folder = path.parent
        if folder.name in _SHARED:
            continue  # a zip names those that it needs
        if folder.name == "v2" and folder.parent.name == "_metadata":
            found += [str(path)] if path.name.isdigit() and int(path.name) <= batch else []
        else:
            stores[str(folder)].append(path.name)
    for store, names in stores.items():
        try:
            found += list(_files_of_store(spark, store, names, batch + 1))
        except FileNotFoundError:
            if not _is_left_over(spark, store, batch):
                raise
    return found


def _is_left_over(spark: Place, store: str, batch: int) -> bool:
    """Whether a store is of a partition that the state does not have any more, as far as the log says."""
    partition = store.split("/")[2]
    with suppress(MillraceError):  # Spark may have removed the entry
        settings = SparkLog(spark).settings_of(batch)
        return PARTITIONS in settings and partition.isdigit() and int(partition) >= int(settings[PARTITIONS])
    return False


def require_named(places: Mapping[str, Place]) -> None:
    """Check that a copy has the files that its zips name: Spark may have replaced a zip while it was copied.

    Args:
        places: the places of the copies by their names in Spark's part.

    Raises:
        FileNotFoundError: one is not among them.
        MillraceError: a zip is damaged.
    """
    for name, place in places.items():
        if name.startswith("state/") and name.endswith(".zip"):
            store = name.rpartition("/")[0]
            for needed in _named_by(place):
                if f"{store}/{needed}" not in places:
                    raise FileNotFoundError(f"{place}: {store} has no {needed}")


def _files_of_store(spark: Place, store: str, names: Sequence[str], last: int) -> Iterator[str]:
    """Yield the files that version ``last`` of a store is loaded from, and those that are no versions."""
    with_id = {name for name in names if _VERSION_WITH_ID.fullmatch(name)}
    versions = {name: int(match[1]) for name in names if (match := _VERSION.fullmatch(name))}
    yield from (f"{store}/{name}" for name in names if name not in versions and name not in with_id)
    if with_id:
        message = (
            f"the state in {spark}/{store} has several files for a version, of which only Spark knows which counts"
        )
        hint = "snapshots need spark.sql.streaming.stateStore.checkpointFormatVersion 1, which is the default"
        raise MillraceError(Problem(message, hint))
    if not versions:
        return
    whole = {number: name for name, number in versions.items() if number <= last and name.endswith(_WHOLE)}
    changes = {number: name for name, number in versions.items() if not name.endswith(_WHOLE)}
    first = max(whole, default=0)
    if first:
        yield f"{store}/{whole[first]}"
        if whole[first].endswith(".zip"):
            yield from (f"{store}/{name}" for name in _named_by(within(spark, f"{store}/{whole[first]}")))
    for number in range(first + 1, last + 1):
        if number not in changes:
            raise FileNotFoundError(f"{spark}/{store}: it has no version {number}")
        yield f"{store}/{changes[number]}"


def _named_by(file: Place) -> list[str]:
    """Return the files outside of a zip that RocksDB needs beside it, from the store's folder on."""
    content = file.read_bytes()
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            _, _, text = archive.read("metadata").decode().partition("\n")
        metadata = json.loads(text)
        named = [f"SSTs/{each['dfsSstFileName']}" for each in metadata.get("sstFiles") or ()]
        return named + [f"logs/{each['dfsLogFileName']}" for each in metadata.get("logFiles") or ()]
    except (zipfile.BadZipFile, ValueError, KeyError, TypeError):
        raise damaged(file, "it is not what Spark writes there") from None
