"""Queries that a rule of a policy refuses and allows: each field of a rule has a case."""

from copy import deepcopy

import yaml

from millrace_api.validation.loading import read_query
from millrace_operator.resources.permissions import NotAllowedError, Permissions
from millrace_operator.resources.restrictions import problems
from millrace_operator.resources.tenancy_policy import TenancyPolicy

from .cases import SMALLEST
from .refused_code import CODE
from .refused_references import REFUSED_REFERENCES
from .refused_reports import REPORTS
from .refused_roles import ROLES
from .refused_scheduling import SCHEDULING
from .refused_tables import ICEBERG, REFUSED_TABLES

NAMESPACE = "cabs"


def query(**spec):
    """The smallest query with these parts of its spec, ``a__b=`` standing for ``{a: {b: ...}}``."""
    document = yaml.safe_load(SMALLEST)
    for path, value in spec.items():
        *above, last = path.split("__")
        inner = document["spec"]
        for part in above:
            inner = inner.setdefault(part, {})
        inner[last] = value
    checked = read_query(document)
    assert problems(checked) == []
    return checked


def policy(**rule):
    return Permissions(TenancyPolicy.model_validate({"policy": [{"namespaces": [NAMESPACE], **rule}]}, by_name=False))


def said(permissions, asked, namespace=NAMESPACE):
    """All that is said against a query."""
    try:
        permissions.require(asked, namespace)
    except NotAllowedError as error:
        return [str(problem) for problem in error.problems]
    return []


def container(name, **parts):
    return {"spec": {"containers": [{"name": name, **parts}]}}


MOUNTED = {
    "spec": {"volumes": [{"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}}]},
}


def mounted(role, path="/mnt/state", **mount):
    template = deepcopy(MOUNTED)
    mounts = [{"name": "shared", "mountPath": path, **mount}]
    template["spec"]["containers"] = [{"name": role, "volumeMounts": mounts}]
    return template


ON_URI = {
    "checkpoint": {"uri": "file:///mnt/state/trips"},
    "driver__podTemplate": mounted("driver"),
    "executors__podTemplate": mounted("executor"),
}
FILES = {"schema": "cell STRING, at TIMESTAMP"}
ON_DATA = {
    "driver__podTemplate": mounted("driver", "/data"),
    "executors__podTemplate": mounted("executor", "/data"),
}
AVRO = {"kafka": {"bootstrapServers": "kafka:9092", "topic": "trips"}, "schema": "cell STRING", "format": "avro"}
OIDC = {
    "tokenEndpoint": "https://login.example.com/oauth2/token",
    "clientId": "trips",
    "clientSecret": {"secretKeyRef": {"name": "login", "key": "secret"}},
}
TOKENS = {"mechanism": "OAUTHBEARER", "oidc": OIDC}
EVIL = "https://evil.example.com/token"
DATABASE = {"database": "sales", "table": "trips", "key": ["cell"], "user": "millrace"}
LOCAL_ICEBERG = ICEBERG | {"catalog": {"file": "/data/catalog.db"}, "location": "/data/trips"}
REPLAY = {"path": "/data/a.csv", "format": "csv", "timeColumn": "at"}
DEDICATED = {"partitioner__placement": "Dedicated", "partitioner__replicas": {"max": 5}, "executors__max": 2}
IMAGE = "registry.example.com/trips:1"

REFUSED = [
    (
        "images",
        {"images": ["registry.example.com/**", "docker.io/library/*"]},
        {"image": IMAGE},
        {"image": "registry.example.com.evil.com/trips:1"},
        'spec.image: "registry.example.com.evil.com/trips:1" is not allowed in namespace cabs; '
        "write a value that matches one of registry.example.com/**, docker.io/library/*",
    ),
    (
        "images",
        {"images": []},
        {},
        {"image": IMAGE},
        f'spec.image: "{IMAGE}" is not allowed in namespace cabs; leave it out: the policy allows none',
    ),
    *(
        (
            "images",
            {"images": ["registry.example.com/**"]},
            {f"{role}__podTemplate": {"spec": {kind: [{"name": "side", "image": IMAGE}]}}},
            {f"{role}__podTemplate": {"spec": {kind: [{"name": "side", "image": "busybox"}]}}},
            f'spec.{role.replace("__", ".")}.podTemplate.spec.{kind}[0].image: "busybox" is not allowed',
        )
        for role in ("driver", "executors", "partitioner__pod")
        for kind in ("containers", "initContainers", "ephemeralContainers")
    ),
    *(
        (
            "images",
            {"images": ["registry.example.com/**"]},
            {"sparkConf": {"spark.sql.shuffle.partitions": "8", "spark.files.overwrite": "true"}},
            {"sparkConf": {setting: "https://evil.com/a"}},
            f'spec.sparkConf[{setting}]: "{setting}" is not allowed in namespace cabs; '
            "leave it out, and put the code into the image: the policy restricts images",
        )
        for setting in ("spark.jars", "spark.jars.packages", "spark.files", "spark.archives", "spark.repl.class.uri")
    ),
    (
        "serviceAccounts",
        {"serviceAccounts": ["streams-*"]},
        {"serviceAccountName": "streams-trips"},
        {"serviceAccountName": "admin"},
        'spec.serviceAccountName: "admin" is not allowed in namespace cabs; write a value that matches one of streams-*',
    ),
    *CODE,
    *ROLES,
    *SCHEDULING,
    (
        "checkpointClaims",
        {"checkpointClaims": ["check*"]},
        {"checkpoint": {"claimName": "checkpoints"}},
        {"checkpoint": {"claimName": "other"}},
        'spec.checkpoint.claimName: a checkpoint on the claim "other" is not allowed in namespace cabs',
    ),
    (
        "checkpointClaims",
        {"checkpointClaims": ["checkpoints"]},
        {},
        ON_URI,
        'spec.checkpoint.uri: a checkpoint on the claim "shared" is not allowed in namespace cabs',
    ),
    (
        "checkpointUris",
        {"checkpointUris": ["file:///mnt/state/**"]},
        ON_URI,
        ON_URI | {"checkpoint": {"uri": "file:///mnt/%73tate2"}, "driver__podTemplate": mounted("driver", "/mnt"),
                  "executors__podTemplate": mounted("executor", "/mnt")},
        'spec.checkpoint.uri: "file:///mnt/%73tate2" is not allowed in namespace cabs; '
        "write a value that matches one of file:///mnt/state/**",
    ),
    (
        "checkpointUris",
        {"checkpointUris": ["s3a://lake/team-a/**"], "checkpointClaims": []},
        {"checkpoint": {"uri": "s3a://lake/team-a/trips"}},
        {"checkpoint": {"uri": "s3a://lake/team-ab/trips"}},
        'spec.checkpoint.uri: "s3a://lake/team-ab/trips" is not allowed in namespace cabs; '
        "write a value that matches one of s3a://lake/team-a/**",
    ),
    (
        "checkpointUris",
        {"checkpointUris": ["s3a://lake/team-a/**"]},
        {"checkpoint": {"uri": "s3a://lake/team-a/trips", "fromSnapshot": "s3a://lake/team-a/old/snapshots/one"}},
        {"checkpoint": {"uri": "s3a://lake/team-a/trips", "fromSnapshot": "s3a://lake/team-b/old/snapshots/one"}},
        'spec.checkpoint.fromSnapshot: "s3a://lake/team-b/old/snapshots/one" is not allowed in namespace cabs',
    ),
    (
        "checkpointClaims",
        {"checkpointClaims": ["checkpoints"]},
        {"checkpoint": {"claimName": "checkpoints"}},
        {"checkpoint": {"claimName": "checkpoints", "fromSnapshot": "file:///var/lib/millrace/checkpoint/a/snapshots/b"}},
        'spec.checkpoint.fromSnapshot: "file:///var/lib/millrace/checkpoint/a/snapshots/b" is not allowed in namespace cabs; '
        "leave it out: the policy allows none",
    ),
    (
        "checkpointUris",
        {"checkpointUris": ["file:///mnt/state/**"]},
        ON_URI,
        {"checkpoint": {"uri": "s3a://lake/trips"}},
        'spec.checkpoint.uri: "s3a://lake/trips" is not allowed in namespace cabs',
    ),
    (
        "checkpointUris",
        {"checkpointUris": ["abfss://lake@account.blob.core.windows.net/team-a/**"], "checkpointClaims": []},
        {"checkpoint": {"uri": "abfss://lake@account.blob.core.windows.net/team-a/trips"}},
        {"checkpoint": {"uri": "abfss://lake@account2.blob.core.windows.net/team-a/trips"}},
        'spec.checkpoint.uri: "abfss://lake@account2.blob.core.windows.net/team-a/trips" is not allowed in namespace cabs',
    ),
    (
        "s3Endpoints",
        {"s3Endpoints": ["https://*.example.com:9000"]},
        {},
        {"checkpoint": {"uri": "abfss://lake@account.blob.core.windows.net/trips"}},
        'spec.checkpoint.uri: "abfss://lake@account.blob.core.windows.net/trips" is not allowed in namespace cabs, where '
        "s3Endpoints are named and no checkpointUris",
    ),
    (
        "checkpointClaims",
        {"checkpointClaims": ["checkpoints"]},
        {},
        {"checkpoint": {"uri": "s3a://lake/trips"}},
        "spec.checkpoint.uri: a checkpoint in an object store is not allowed in namespace cabs, where claims are named and "
        "no checkpointUris",
    ),
    (
        "s3Endpoints",
        {"s3Endpoints": ["https://*.example.com:9000"]},
        {"s3": {"endpoint": "https://minio.example.com:9000"}},
        {"s3": {"endpoint": "https://minio.example.org:9000"}},
        'spec.s3.endpoint: "https://minio.example.org:9000" is not allowed in namespace cabs',
    ),
    (
        "brokers",
        {"brokers": ["kafka:9092"]},
        {},
        {"sources__trips__kafka__bootstrapServers": "kafka:9092, evil:9092"},
        'spec.sources.trips.kafka.bootstrapServers: " evil:9092" is not allowed in namespace cabs',
    ),
    (
        "brokers",
        {"brokers": ["kafka:9092"]},
        {"sink": {"table": {"bootstrapServers": "kafka", "topic": "t"}}},
        {"sink": {"table": {"bootstrapServers": "evil:9092", "topic": "t"}}},
        'spec.sink.table.bootstrapServers: "evil:9092" is not allowed in namespace cabs',
    ),
    (
        "brokers",
        {"brokers": ["kafka:9092"]},
        {},
        {
            "sources__trips__schema": "cell STRING, at TIMESTAMP",
            "sources__trips__watermark": {"column": "at", "delay": "1s"},
            "query__sql": "SELECT window, count(*) AS n FROM trips GROUP BY window(at, '1 minute')",
            "additionalOutputs": {
                "final": {"emit": "OnWindowClose", "sink": {"kafka": {"bootstrapServers": "evil:1", "topic": "t"}}}
            },
        },
        'spec.additionalOutputs.final.sink.kafka.bootstrapServers: "evil:1" is not allowed',
    ),
    (
        "databases",
        {"databases": ["*.db.example.com:5432"]},
        {"sink": {"postgres": DATABASE | {"host": "One.db.example.com,two.db.example.com:5432"}}},
        {"sink": {"postgres": DATABASE | {"host": "one.db.example.com, evil.example.com"}}},
        'spec.sink.postgres.host: " evil.example.com" is not allowed in namespace cabs',
    ),
    *REFUSED_TABLES,
    *REFUSED_REFERENCES,
    (
        "tokenEndpoints",
        {"tokenEndpoints": ["https://login.example.com/**"]},
        {"sources__trips__kafka__sasl": TOKENS},
        {"sources__trips__kafka__sasl": {"mechanism": "OAUTHBEARER", "oidc": OIDC | {"tokenEndpoint": EVIL}}},
        f'spec.sources.trips.kafka.sasl.oidc.tokenEndpoint: "{EVIL}" is not allowed in '
        "namespace cabs; write a value that matches one of https://login.example.com/**",
    ),
    (
        "files",
        {"files": ["/data/**"]},
        ON_DATA | {"sink": {"iceberg": LOCAL_ICEBERG}},
        ON_DATA | {"sink": {"iceberg": LOCAL_ICEBERG | {"catalog": {"file": "/etc/catalog.db"}}}},
        'spec.sink.iceberg.catalog.file: "/etc/catalog.db" is not allowed',
    ),
    (
        "schemaRegistries",
        {"schemaRegistries": ["https://schemas.example.com/**"]},
        {"sources__trips": AVRO | {"avro": {"registry": "https://schemas.example.com/v1"}}},
        {"sources__trips": AVRO | {"avro": {"registry": "https://schemas.example.com.evil.com"}}},
        'spec.sources.trips.avro.registry: "https://schemas.example.com.evil.com" is not allowed',
    ),
    (
        "files",
        {"files": ["/data/**"]},
        ON_DATA | {"sources__trips": FILES | {"files": {"path": "/data/*.csv", "format": "csv"}}},
        {"sources__trips": FILES | {"files": {"path": "/data/../etc/*.csv", "format": "csv"}}},
        'spec.sources.trips.files.path: "/data/../etc/*.csv" is not allowed in namespace cabs; '
        "write a value that matches one of /data/**",
    ),
    (
        "files",
        {"files": ["/data/**"]},
        ON_DATA | {"sources__trips": FILES | {"replay": REPLAY}},
        {"sources__trips": FILES | {"replay": REPLAY | {"path": "data/a.csv"}}},
        'spec.sources.trips.replay.path: "data/a.csv" is not allowed',
    ),
    (
        "files",
        {"files": ["/data/**"]},
        ON_DATA | {"sources__trips__corruptRecords": {"policy": "DeadLetter", "path": "/data/dead"}},
        {"sources__trips__corruptRecords": {"policy": "DeadLetter", "path": "/other/dead"}},
        'spec.sources.trips.corruptRecords.path: "/other/dead" is not allowed',
    ),
    (
        "files",
        {"files": ["/data/**"]},
        ON_DATA | {"sink": {"files": {"path": "/data/out"}}},
        {"sink": {"files": {"path": "/other/out"}}},
        'spec.sink.files.path: "/other/out" is not allowed',
    ),
    (
        "files",
        {"files": ["s3a://lake/orders/**"]},
        {"sources__trips": FILES | {"files": {"path": "s3a://lake/orders/*/a*.json", "format": "json"}}},
        {"sources__trips": FILES | {"files": {"path": "s3a://lake/orders2/a.json", "format": "json"}}},
        'spec.sources.trips.files.path: "s3a://lake/orders2/a.json" is not allowed',
    ),
    *REPORTS,
    (
        "sparkConf.allow",
        {"sparkConf": {"allow": ["spark.sql.*"]}},
        {"sparkConf": {"spark.sql.adaptive.enabled": "true"}},
        {"sparkConf": {"spark.eventLog.dir": "/x"}},
        'spec.sparkConf[spark.eventLog.dir]: "spark.eventLog.dir" is not allowed in namespace cabs; '
        "write a value that matches one of spark.sql.*",
    ),
    (
        "sparkConf.allow",
        {"sparkConf": {"allow": ["spark.sql.*", "spark.driver.extraJavaOptions"]}},
        {"sparkConf": {"spark.driver.extraJavaOptions": "-Xss4m", "spark.sql.legacy.timeParserPolicy": "CORRECTED"}},
        {"sparkConf": {"spark.sql.extensions": "evil.Extension"}},
        'spec.sparkConf[spark.sql.extensions]: "spark.sql.extensions" is not allowed in namespace cabs; '
        "write a number, a size, a duration, true or false, or let an administrator name it in sparkConf.allow",
    ),
    (
        "functions",
        {"functions": ["reflect", "transform_using"]},
        {"query__sql": "SELECT reflect('java.lang.Math', 'random') AS n FROM trips"},
        {"query__sql": "SELECT java_method('java.lang.Math', 'random') AS n FROM trips"},
        'spec.query.sql: "java_method" reaches outside the SQL (line 1, column 8 of the SQL), not allowed in namespace '
        "cabs; leave it out, or ask an administrator to add java_method to functions of the policy",
    ),
    (
        "sparkConf.deny",
        {"sparkConf": {"deny": ["spark.extraListeners", "spark.sql.*"]}},
        {"sparkConf": {"spark.eventLog.enabled": "true"}},
        {"sparkConf": {"spark.sql.extensions": "x"}},
        'spec.sparkConf[spark.sql.extensions]: "spark.sql.extensions" is not allowed in namespace cabs; '
        "leave it out: the policy denies spark.extraListeners, spark.sql.*",
    ),
    (
        "limits.executors",
        {"limits": {"executors": 8}},
        {"executors__max": 8},
        {"executors__max": 9},
        "spec.executors.max: 9 executors are more than the 8 that a query may have in namespace cabs; write less",
    ),
    (
        "limits.partitioners",
        {"limits": {"partitioners": 4}},
        {"partitioner__replicas": {"max": 5}},
        DEDICATED,
        "spec.partitioner.replicas.max: 5 partitioners in pods of their own are more than the 4 that a query may have",
    ),
    (
        "limits.partitioners",
        {"limits": {"partitioners": 0}},
        {},
        {"partitioner__placement": "Auto"},
        "spec.partitioner.replicas.max: 8 partitioners in pods of their own are more than the 0",
    ),
    (
        "limits.coresPerPod",
        {"limits": {"coresPerPod": 2}},
        {"executors__cores": 2},
        {"executors__cores": 3},
        "spec.executors.cores: 3 cores are more than the 2 that a pod may have in namespace cabs; write less",
    ),
    (
        "limits.coresPerPod",
        {"limits": {"coresPerPod": 2}},
        {"driver__podTemplate": container("driver", resources={"requests": {"cpu": "1500m"}})},
        {"driver__podTemplate": container("driver", resources={"limits": {"cpu": "2500m"}})},
        "spec.driver.cores: 2.5 cores are more than the 2",
    ),
    (
        "limits.coresPerPod",
        {"limits": {"coresPerPod": 2}},
        {"driver__podTemplate": container("side", image=IMAGE, resources={"requests": {"cpu": 1}})},
        {"driver__podTemplate": container("side", image=IMAGE, resources={"requests": {"cpu": 2}})},
        "spec.driver.cores: 3 cores are more than the 2",
    ),
    (
        "limits.coresPerPod",
        {"limits": {"coresPerPod": "1500m"}},
        {"executors__cores": "1.5"},
        {"executors__cores": "1501m"},
        "spec.executors.cores: 1.501 cores are more than the 1.5 that a pod may have",
    ),
    (
        "limits.memoryPerPod",
        {"limits": {"memoryPerPod": "2560m"}},
        {"executors__memory": "1g", "driver__memory": "1g"},
        {"executors__memory": "2g", "driver__memory": "2g"},
        "spec.driver.memory: 3072 MiB of memory, with all beside the heap, are more than the 2560m",
    ),
    (
        "limits.memoryPerPod",
        {"limits": {"memoryPerPod": "4g"}},
        {"driver__maxMemory": "3g", "executors__maxMemory": "2g"},
        {"driver__maxMemory": "4g"},
        "spec.driver.maxMemory: 5120 MiB of memory, with all beside the heap, are more than the 4g",
    ),
    (
        "limits.memoryPerPod",
        {"limits": {"memoryPerPod": "4g"}},
        {"executors__podTemplate": container("side", image=IMAGE, resources={"limits": {"memory": "64Mi"}})},
        {"executors__podTemplate": container("side", image=IMAGE)},
        "spec.executors.memory: a container without a limit of memory may take more than 4g; "
        "write resources.limits.memory in the pod template",
    ),
    (
        "limits.cores",
        {"limits": {"cores": 9}},
        {"executors": {"max": 4, "cores": 2}},
        {"executors": {"max": 5, "cores": 2}},
        "spec.executors.max: 11 cores are more than the 9 that all pods of a query may have in namespace cabs",
    ),
    (
        "limits.cores",
        {"limits": {"cores": 9}},
        DEDICATED | {"partitioner__replicas": {"max": 4}},
        DEDICATED,
        "spec.executors.max: 10 cores are more than the 9",
    ),
    (
        "limits.memory",
        {"limits": {"memory": "8g"}},
        {"executors": {"max": 1}},
        {"executors": {"max": 3}},
        "MiB of memory, with all beside the heap, are more than the 8g that all pods of a query may have",
    ),
    (
        "limits.memory",
        {"limits": {"memory": "8g"}},
        {"executors": {"max": 1}},
        {"executors": {"max": 1}, "driver__podTemplate": container("driver", resources={"limits": {"memory": "x"}})},
        'spec.driver.podTemplate: "x" is not a quantity; write one such as 500m or 2Gi',
    ),
]  # fmt: skip
"""A field of a rule, a rule with it, what it allows, what it does not, and what is said about that."""
