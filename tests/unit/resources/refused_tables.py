"""Tables that a query reads and its tenant's policy refuses, each beside one that it allows, as in ``refused``."""

REST = {"uri": "https://catalog.example.com/iceberg"}
CATALOG = {"database": "lake", "user": "millrace"}
CELLS = {"schema": "cell STRING, area STRING", "table": {"keys": ["cell"], "static": True, "refreshEvery": "5m"}}
TABLE = {"catalog": {"rest": REST}, "table": "sales.cells"}

REFUSED_TABLES = [
    (
        "databases",
        {"databases": ["*.db.example.com:5432"]},
        {"sources__cells": CELLS | {"postgres": CATALOG | {"host": "one.db.example.com", "table": "cells"}}},
        {"sources__cells": CELLS | {"postgres": CATALOG | {"host": "evil.example.com", "table": "cells"}}},
        'spec.sources.cells.postgres.host: "evil.example.com" is not allowed in namespace cabs',
    ),
    (
        "tables",
        {"tables": ["s3a://lake/team-a/**"]},
        {"sources__cells": CELLS | {"delta": {"path": "s3a://lake/team-a/cells"}}},
        {"sources__cells": CELLS | {"delta": {"path": "s3a://lake/team-b/cells"}}},
        'spec.sources.cells.delta.path: "s3a://lake/team-b/cells" is not allowed in namespace cabs',
    ),
    (
        "tables",
        {"tables": ["s3a://lake/team-a/**"]},
        {"sources__cells": CELLS | {"iceberg": TABLE | {"location": "s3a://lake/team-a/cells"}}},
        {"sources__cells": CELLS | {"iceberg": TABLE}},
        "spec.sources.cells.iceberg.location: a table wherever its catalog puts it is not allowed in namespace cabs; "
        "write what matches one of s3a://lake/team-a/**",
    ),
    (
        "catalogs",
        {"catalogs": ["https://catalog.example.com/**"]},
        {"sources__cells": CELLS | {"iceberg": TABLE}},
        {"sources__cells": CELLS | {"iceberg": TABLE | {"catalog": {"rest": {"uri": "https://evil.example.com"}}}}},
        'spec.sources.cells.iceberg.catalog.rest.uri: "https://evil.example.com" is not allowed in namespace cabs',
    ),
]
