"""The requests that a query makes of object stores: Millrace's own, and those of Spark's client for S3 in the driver.

Hadoop's S3A counts what each of its file systems asks for, and shows it by JMX. Its client for Azure shows nothing, and
executors count where the driver cannot look.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from millrace_jobs.stores.requests import StoreCounters

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OWN, _SPARK = CLIENTS = ("millrace", "spark")
"""Whose requests are counted."""

_PERIOD = 10.0
"""Seconds from one reading to the next, which is also how long S3A's figures stay as they are."""

_FIELDS: Mapping[str, tuple[str, ...]] = {
    "GET": ("action_http_get_request",),
    "HEAD": ("object_metadata_request",),
    "PUT": ("object_put_request_completed", "multipart_instantiated", "multipart_upload_completed"),
    "LIST": ("object_list_request", "object_continue_list_request"),
    "DELETE": ("object_delete_request", "object_bulk_delete_request"),
    "COPY": ("object_copy_requests",),
    "read": ("stream_read_total_bytes",),
    "written": ("object_put_bytes",),
}
"""The names of S3A's counters (``org.apache.hadoop.fs.s3a.Statistic``) for what is counted."""

_ATTRIBUTES = [name for names in _FIELDS.values() for name in names]
_FILE_SYSTEMS = "Hadoop:service=s3a-file-system,name=S3AMetrics*"
_NAME = "javax.management.ObjectName"
_VALUE = re.compile(r"(\w+) = (\d+)")


class ObjectStoreTraffic:
    """What a query has asked of object stores, read at most every ten seconds.

    Args:
        spark: the session.
        folder: the counters of Millrace's own processes.
        clock: monotonic clock, in seconds.
    """

    def __init__(self, spark: SparkSession, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._spark, self._own, self._clock = spark, StoreCounters(folder), clock
        self._next = clock()
        self._counted: dict[str, Counter[str]] = {}

    def since(self) -> Mapping[str, Counter[str]]:
        """Return each client's requests by kind, and bytes by direction, since the last reading.

        Nothing is returned if that was not long ago, or fails. A file system that Spark has closed counts as far as it
        was read.
        """
        if self._clock() < self._next:
            return {}
        self._next = self._clock() + _PERIOD
        try:
            now = dict(self._readings())
        except (Py4JError, OSError):  # the JVM has ended, as the run loop will find out by itself
            return {}
        new: dict[str, Counter[str]] = {client: Counter() for client in CLIENTS}
        for name, counters in now.items():
            new[_OWN if name == _OWN else _SPARK] += counters - self._counted.get(name, Counter())
        self._counted = now
        return new

    def _readings(self) -> Iterator[tuple[str, Counter[str]]]:
        """Yield what has been counted so far, by Millrace and by each file system of S3A in the driver's JVM."""
        yield _OWN, self._own.counted()
        context = self._spark.sparkContext
        gateway, java = context._gateway, context._jvm
        assert gateway is not None
        assert java is not None

        def array(kind: Any, *items: Any) -> Any:
            made = gateway.new_array(kind, len(items))
            for i, item in enumerate(items):
                made[i] = item
            return made

        def ask(method: str, kinds: Sequence[str], *arguments: Any) -> Any:
            # by reflection on the public interface: Py4J cannot call methods of the JDK's own class behind it
            interface = java.java.lang.Class.forName("javax.management.MBeanServer")
            found = interface.getMethod(method, array(java.java.lang.Class, *map(java.java.lang.Class.forName, kinds)))
            return found.invoke(server, array(java.java.lang.Object, *arguments))

        server = java.java.lang.management.ManagementFactory.getPlatformMBeanServer()
        pattern = java.javax.management.ObjectName(_FILE_SYSTEMS)
        names = array(java.java.lang.String, *_ATTRIBUTES)
        for name in ask("queryNames", (_NAME, "javax.management.QueryExp"), pattern, None).toArray():
            shown = ask("getAttributes", (_NAME, "[Ljava.lang.String;"), name, names).toString()
            values = {attribute: int(value) for attribute, value in _VALUE.findall(shown)}
            sums = {field: sum(values.get(each, 0) for each in of) for field, of in _FIELDS.items()}
            yield str(name.toString()), Counter(sums)
