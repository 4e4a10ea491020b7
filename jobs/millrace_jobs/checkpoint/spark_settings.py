"""The Spark settings of a query: those that it names, and those that its object stores, its log and its jars need."""

from __future__ import annotations

from millrace_api.model.streamquery import StreamQuery
from millrace_api.validation.places import bucket_and_prefix
from millrace_jobs import event_log
from millrace_jobs.own_code.own_code import current, with_lists
from millrace_jobs.stores.objects import ObjectPath
from millrace_jobs.stores.spark import environment_of, store_settings


def settings_of(query: StreamQuery) -> dict[str, str]:
    """Return the settings; those that the query names override the others, but for the place of its event log.

    Raises:
        MillraceError: the checkpoint or the event log needs a client of Spark that is missing.
    """
    uri = (query.spec.checkpoint and query.spec.checkpoint.uri) or ""
    place = ObjectPath.of(uri) if bucket_and_prefix(uri) is not None else None
    log = query.spec.event_log
    logs = event_log.place_of(log) if log is not None else None
    own = store_settings(place, logs if isinstance(logs, ObjectPath) else None)
    own |= {
        f"spark.executorEnv.{name}": value for name, value in environment_of(query.spec.s3, query.spec.azure).items()
    }
    settings = with_lists(with_lists(own, query.spec.spark_conf), current().settings())
    return settings | (event_log.settings(log) if log is not None else {})
