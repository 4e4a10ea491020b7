"""The check of an Iceberg catalog before Spark starts: it leaves nothing open, and creates nothing."""

import pytest

from millrace_api.model.iceberg import IcebergSinkSpec
from millrace_jobs.lakehouse import iceberg_catalog
from millrace_jobs.sinks.lakehouse.connector import IcebergSinkConnector

POSTGRES = {"host": "db", "database": "lake", "user": "u", "password": {"file": "p"}}


class OpenedCatalog:
    """A catalog that knows whether it was closed."""

    is_closed = False

    def close(self):
        self.is_closed = True


@pytest.mark.parametrize(
    ("catalog", "opens"),
    [({"rest": {"uri": "http://lake:8181"}}, 1), ({"file": "lake.db"}, 0), ({"postgres": POSTGRES}, 0)],
)
def test_only_catalogs_that_opening_does_not_create_are_asked(monkeypatch, catalog, opens):
    opened = []
    monkeypatch.setattr(iceberg_catalog, "open_catalog", lambda _: opened.append(OpenedCatalog()) or opened[-1])
    IcebergSinkConnector().check_server(IcebergSinkSpec.model_validate({"catalog": catalog, "table": "a.cells"}))
    assert [each.is_closed for each in opened] == [True] * opens
