"""Tables that a query reads or writes and its tenant's policy refuses, each beside one that it allows, as in ``refused``."""

REST = {"uri": "https://catalog.example.com/iceberg"}
CATALOG = {"database": "lake", "user": "millrace"}
RESULTS = CATALOG | {"table": "cells", "key": ["cell"]}
CELLS = {"schema": "cell STRING, area STRING", "table": {"keys": ["cell"], "static": True, "refreshEvery": "5m"}}
TABLE = {"catalog": {"rest": REST}, "table": "sales.cells"}
STREAM = {"schema": "cell STRING, at TIMESTAMP"}
STREAMED = {"catalog": {"rest": REST}, "table": "sales.trips"}
LOOKED_UP = {"table": {"bootstrapServers": "kafka:9092", "topic": "by-cell"}}
READERS = {"secretKeyRef": {"name": "readers", "key": "tokens"}}
LOOKUPS = {"tokens": READERS, "tls": {"certificate": READERS, "key": READERS}}
ICEBERG = {"catalog": {"rest": REST}, "table": "sales.trips", "location": "s3a://lake/team-a/trips", "key": ["cell"]}

REFUSED_TABLES = [
    (
        "databases",
        {"databases": ["*.db.example.com:5432"]},
        {"sources__cells": CELLS | {"postgres": CATALOG | {"host": "one.db.example.com", "table": "cells"}}},
        {"sources__cells": CELLS | {"postgres": CATALOG | {"host": "evil.example.com", "table": "cells"}}},
        'spec.sources.cells.postgres.host: "evil.example.com" is not allowed in namespace cabs',
    ),
    (
        "databases",
        {"databases": ["*.db.example.com:3306"]},
        {"sources__cells": CELLS | {"mysql": CATALOG | {"host": "one.db.example.com", "table": "cells"}}},
        {"sources__cells": CELLS | {"mysql": CATALOG | {"host": "one.db.example.com:5432", "table": "cells"}}},
        'spec.sources.cells.mysql.host: "one.db.example.com:5432" is not allowed in namespace cabs',
    ),
    (
        "databases",
        {"databases": ["*.db.example.com:*"]},
        {"sink": {"mysql": RESULTS | {"host": "one.db.example.com,two.db.example.com:3307"}}},
        {"sink": {"mysql": RESULTS | {"host": "one.db.example.com,evil.example.com"}}},
        'spec.sink.mysql.host: "evil.example.com" is not allowed in namespace cabs',
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
        "write a value that matches one of s3a://lake/team-a/**",
    ),
    (
        "catalogs",
        {"catalogs": ["https://catalog.example.com/**"]},
        {"sources__cells": CELLS | {"iceberg": TABLE}},
        {"sources__cells": CELLS | {"iceberg": TABLE | {"catalog": {"rest": {"uri": "https://evil.example.com"}}}}},
        'spec.sources.cells.iceberg.catalog.rest.uri: "https://evil.example.com" is not allowed in namespace cabs',
    ),
    (
        "tables",
        {"tables": ["s3a://lake/team-a/**"]},
        {"sources": {"trips": STREAM | {"iceberg": STREAMED | {"location": "s3a://lake/team-a/trips"}}}},
        {"sources": {"trips": STREAM | {"iceberg": STREAMED}}},
        "spec.sources.trips.iceberg.location: a table wherever its catalog puts it is not allowed in namespace cabs; ",
    ),
    (
        "catalogs",
        {"catalogs": ["https://catalog.example.com/**"]},
        {"sources": {"trips": STREAM | {"iceberg": STREAMED}}},
        {
            "sources": {
                "trips": STREAM | {"iceberg": STREAMED | {"catalog": {"rest": {"uri": "https://evil.example.com"}}}}
            }
        },
        'spec.sources.trips.iceberg.catalog.rest.uri: "https://evil.example.com" is not allowed in namespace cabs',
    ),
    (
        "tables",
        {"tables": ["s3a://lake/team-a/**"]},
        {"sink": {"delta": {"path": "s3a://lake/team-a/trips", "key": ["cell"]}}},
        {"sink": {"delta": {"path": "s3a://lake/team-b/trips", "key": ["cell"]}}},
        'spec.sink.delta.path: "s3a://lake/team-b/trips" is not allowed in namespace cabs',
    ),
    (
        "tables",
        {"tables": ["s3a://lake/team-a/**"]},
        {"sink": {"iceberg": ICEBERG}},
        {"sink": {"iceberg": ICEBERG | {"location": "s3a://lake/team-b/trips"}}},
        'spec.sink.iceberg.location: "s3a://lake/team-b/trips" is not allowed in namespace cabs',
    ),
    (
        "tables",
        {"tables": ["s3a://lake/team-a/**"]},
        {"sink": {"iceberg": ICEBERG}},
        {"sink": {"iceberg": {name: value for name, value in ICEBERG.items() if name != "location"}}},
        "spec.sink.iceberg.location: a table wherever its catalog puts it is not allowed in namespace cabs; "
        "write a value that matches one of s3a://lake/team-a/**",
    ),
    (
        "catalogs",
        {"catalogs": ["https://catalog.example.com/**"]},
        {"sink": {"iceberg": ICEBERG}},
        {"sink": {"iceberg": ICEBERG | {"catalog": {"rest": REST | {"uri": "https://evil.example.com/iceberg"}}}}},
        'spec.sink.iceberg.catalog.rest.uri: "https://evil.example.com/iceberg" is not allowed in namespace cabs',
    ),
    (
        "catalogs",
        {"catalogs": ["https://catalog.example.com/**"]},
        {"sink": {"iceberg": ICEBERG}},
        {"sink": {"iceberg": ICEBERG | {"catalog": {"rest": REST | {"tokenUri": "https://evil.example.com/token"}}}}},
        'spec.sink.iceberg.catalog.rest.tokenUri: "https://evil.example.com/token" is not allowed in namespace cabs',
    ),
    (
        "catalogs",
        {"catalogs": ["thrift://*.example.com:9083"]},
        {"sink": {"iceberg": ICEBERG | {"catalog": {"hive": {"uri": "thrift://Hive.example.com:9083"}}}}},
        {"sink": {"iceberg": ICEBERG | {"catalog": {"hive": {"uri": "thrift://evil.org:9083"}}}}},
        'spec.sink.iceberg.catalog.hive.uri: "thrift://evil.org:9083" is not allowed in namespace cabs',
    ),
    (
        "databases",
        {"databases": ["*.db.example.com:5432"]},
        {"sink": {"iceberg": ICEBERG | {"catalog": {"postgres": CATALOG | {"host": "one.db.example.com"}}}}},
        {"sink": {"iceberg": ICEBERG | {"catalog": {"postgres": CATALOG | {"host": "evil.example.com"}}}}},
        'spec.sink.iceberg.catalog.postgres.host: "evil.example.com" is not allowed in namespace cabs',
    ),
    (
        "lookupNamespaces",
        {},
        {"sink": LOOKED_UP, "lookups": LOOKUPS | {"namespaces": ["cabs"]}},
        {"sink": LOOKED_UP, "lookups": LOOKUPS | {"namespaces": ["cabs", "web"]}},
        'spec.lookups.namespaces[1]: "web" is not allowed in namespace cabs; leave it out: the policy allows none',
    ),
    (
        "lookupNamespaces",
        {"lookupNamespaces": ["team-*"]},
        {"sink": LOOKED_UP, "lookups": LOOKUPS | {"namespaces": ["team-a", "cabs"]}},
        {"sink": LOOKED_UP, "lookups": LOOKUPS | {"namespaces": ["team-a", "*"]}},
        'spec.lookups.namespaces[1]: "*" is not allowed in namespace cabs; write a value that matches one of team-*',
    ),
]
