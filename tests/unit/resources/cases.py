"""Queries whose objects are kept as golden files, by file name."""

from __future__ import annotations

import yaml

from millrace_api.model.deployment import Placement
from millrace_api.model.plan import Plan
from millrace_api.model.streamquery import StreamQuery
from millrace_api.validation.loading import read_query
from millrace_operator.resources.manifests import objects, to_yaml
from millrace_operator.resources.names import Manifest, Owner
from millrace_operator.resources.partitioner import Partitioners
from millrace_operator.resources.pod_defaults import PodDefaults

SMALLEST = """\
apiVersion: millrace.io/v1alpha1
kind: StreamQuery
metadata: {name: trips-by-cell}
spec:
  sources:
    trips:
      kafka: {bootstrapServers: "kafka:9092", topic: trips}
      schema: cell STRING, fare DOUBLE
  query: {sql: "SELECT cell, count(*) AS n FROM trips GROUP BY cell"}
  sink: {kafka: {bootstrapServers: "kafka:9092", topic: trips-by-cell}}
  checkpoint: {claimName: checkpoints}
"""

SECURED = """\
apiVersion: millrace.io/v1alpha1
kind: StreamQuery
metadata: {name: trips-by-cell}
spec:
  sources:
    trips:
      kafka:
        bootstrapServers: kafka:9093
        topic: trips
        tls: {ca: {secretKeyRef: {name: kafka-ca, key: ca.crt}}}
        sasl:
          mechanism: SCRAM-SHA-512
          username: {secretKeyRef: {name: kafka-login, key: username}}
          password: {secretKeyRef: {name: kafka-login, key: password}}
      schema: cell STRING, fare DOUBLE, at TIMESTAMP
      watermark: {column: at, delay: 30s}
  query:
    sql: |
      SELECT window.start AS since, cell, count(*) AS n
      FROM trips GROUP BY window(at, '1 minute'), cell
  sink: {table: {bootstrapServers: "kafka:9092", topic: trips-by-cell, key: [since, cell]}}
  emit: OnUpdate
  batchInterval: 10s
  executors: {initial: 3, max: 6, cores: 4, memory: 4g}
  driver: {cores: 2, memory: 2g}
  checkpoint: {claimName: trips-checkpoint}
  sparkConf: {spark.sql.adaptive.enabled: "false"}
"""

TEMPLATED = """\
apiVersion: millrace.io/v1alpha1
kind: StreamQuery
metadata: {name: trips-by-cell}
spec:
  suspend: true
  sources:
    trips:
      rate: {recordsPerSecond: 100}
  query: {sql: "SELECT key, count(*) AS n FROM trips GROUP BY key"}
  sink: {console: {}}
  checkpoint: {uri: "file:///var/lib/shared/trips"}
  image: example.org/trips:7
  serviceAccountName: trips
  driver:
    podTemplate:
      metadata: {annotations: {prometheus.io/scrape: null, team: cabs}}
      spec:
        priorityClassName: steady
        imagePullSecrets: [{name: example-org}]
        volumes: [{name: shared, persistentVolumeClaim: {claimName: trips}}]
        containers:
          - name: driver
            env: [{name: TZ, value: UTC}]
            resources: {limits: {cpu: "2"}}
            volumeMounts: [{name: shared, mountPath: /var/lib/shared}]
          - name: shipper
            image: example.org/shipper:2
            securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
  executors:
    podTemplate:
      spec:
        nodeSelector: {disk: ssd}
        volumes:
          - {name: spark-local-dir-1, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 10Gi}}}}}}
          - {name: shared, persistentVolumeClaim: {claimName: trips}}
        containers: [{name: executor, volumeMounts: [{name: shared, mountPath: /var/lib/shared}]}]
        tolerations: [{key: spot, operator: Exists}]
"""

DEDICATED = """\
apiVersion: millrace.io/v1alpha1
kind: StreamQuery
metadata: {name: trips-by-cell}
spec:
  sources:
    trips:
      kafka:
        bootstrapServers: kafka:9093
        topic: trips
        sasl:
          mechanism: SCRAM-SHA-512
          username: {secretKeyRef: {name: kafka-login, key: username}}
          password: {secretKeyRef: {name: kafka-login, key: password}}
      schema: cell STRING, fare DOUBLE
  query: {sql: "SELECT cell, count(*) AS n FROM trips GROUP BY cell"}
  sink:
    kafka:
      bootstrapServers: elsewhere:9093
      topic: trips-by-cell
      tls: {ca: {secretKeyRef: {name: elsewhere, key: ca.crt}}}
  partitioner:
    algorithm: prompt
    placement: Dedicated
    replicas: {initial: 3}
    pod:
      cores: "1.5"
      memory: 1536m
      podTemplate:
        metadata: {annotations: {team: cabs}}
        spec:
          tolerations: [{key: spot, operator: Exists}]
          containers:
            - name: partitioner
              env: [{name: TZ, value: UTC}]
  executors: {cores: 2500m}
  driver: {cores: 500m}
  checkpoint: {claimName: checkpoints}
"""

IN_S3 = """\
apiVersion: millrace.io/v1alpha1
kind: StreamQuery
metadata: {name: trips-by-cell}
spec:
  sources:
    trips:
      rate: {recordsPerSecond: 100}
  query: {sql: "SELECT key, count(*) AS n FROM trips GROUP BY key"}
  sink: {console: {}}
  serviceAccountName: trips
  checkpoint: {uri: "s3a://lake/checkpoints/trips-by-cell"}
  s3:
    endpoint: https://minio.example.org:9000
    region: eu-central-1
    accessKeyId: {secretKeyRef: {name: lake, key: AWS_ACCESS_KEY_ID}}
    secretAccessKey: {secretKeyRef: {name: lake, key: AWS_SECRET_ACCESS_KEY}}
"""

IN_AZURE = """\
apiVersion: millrace.io/v1alpha1
kind: StreamQuery
metadata: {name: trips-by-cell}
spec:
  sources:
    trips:
      rate: {recordsPerSecond: 100}
  query: {sql: "SELECT key, count(*) AS n FROM trips GROUP BY key"}
  sink: {console: {}}
  checkpoint: {uri: "abfss://lake@account.blob.core.windows.net/checkpoints/trips-by-cell"}
  azure: {accountKey: {secretKeyRef: {name: lake, key: accountKey}}}
"""

REPORTED = """\
apiVersion: millrace.io/v1alpha1
kind: StreamQuery
metadata: {name: trips-by-cell, labels: {argocd.argoproj.io/instance: trips}}
spec:
  sources:
    trips:
      kafka: {bootstrapServers: "kafka:9092", topic: trips}
      schema: cell STRING, fare DOUBLE
  query: {sql: "SELECT cell, count(*) AS n FROM trips GROUP BY cell"}
  sink: {console: {}}
  partitioner: {placement: Dedicated}
  checkpoint: {claimName: checkpoints}
  labels: {team: payments, example.org/cost-center: cc-4711}
  code:
    - {uri: "https://code.example.org/routes.jar", sha256: "0000000000000000000000000000000000000000000000000000000000000000"}
    - {configMap: {name: fares-1, key: fares.py}, sha256: "0000000000000000000000000000000000000000000000000000000000000000"}
    - {configMap: {name: fares-1, key: areas.zip}, sha256: "0000000000000000000000000000000000000000000000000000000000000000"}
    - {configMap: {name: areas.v2, key: areas.py}, sha256: "0000000000000000000000000000000000000000000000000000000000000000"}
  eventLog: {path: /var/lib/millrace/checkpoint/_data/events}
  lineage:
    http:
      url: https://marquez.example.org/api/v1/lineage
      apiKey: {secretKeyRef: {name: marquez, key: token}}
"""

LOOKED_UP = """\
apiVersion: millrace.io/v1alpha1
kind: StreamQuery
metadata: {name: trips-by-cell}
spec:
  sources:
    trips:
      rate: {recordsPerSecond: 100}
  query: {sql: "SELECT key, count(*) AS n FROM trips GROUP BY key"}
  sink: {table: {bootstrapServers: "kafka:9092", topic: trips-by-cell}}
  lookups:
    tokens: {secretKeyRef: {name: trips-readers, key: tokens}}
    tls:
      certificate: {secretKeyRef: {name: trips-tls, key: tls.crt}}
      key: {secretKeyRef: {name: trips-tls, key: tls.key}}
    namespaces: [dashboards]
  checkpoint: {claimName: checkpoints}
"""

_SCHEDULED = """\
apiVersion: millrace.io/v1alpha1
kind: StreamQuery
metadata: {{name: trips-by-cell}}
spec:
  sources:
    trips:
      kafka: {{bootstrapServers: "kafka:9092", topic: trips}}
      schema: cell STRING, fare DOUBLE
  query: {{sql: "SELECT cell, count(*) AS n FROM trips GROUP BY cell"}}
  sink: {{kafka: {{bootstrapServers: "kafka:9092", topic: trips-by-cell}}}}
  checkpoint: {{claimName: checkpoints}}
  partitioner: {{algorithm: prompt, placement: Dedicated, replicas: {{min: 2}}}}
  executors: {{initial: 3, min: 2, max: 6}}
  scheduling: {{scheduler: {scheduler}, queue: {queue}, priorityClass: streaming}}
"""
ON_KUEUE = _SCHEDULED.format(scheduler="Kueue", queue="team-a")
ON_VOLCANO = _SCHEDULED.format(scheduler="Volcano", queue="team-a")
ON_YUNIKORN = _SCHEDULED.format(scheduler="YuniKorn", queue="root.team-a")

CASES = {
    "smallest": SMALLEST,
    "secured": SECURED,
    "templated": TEMPLATED,
    "dedicated": DEDICATED,
    "in-s3": IN_S3,
    "in-azure": IN_AZURE,
    "reported": REPORTED,
    "looked-up": LOOKED_UP,
    "on-kueue": ON_KUEUE,
    "on-volcano": ON_VOLCANO,
    "on-yunikorn": ON_YUNIKORN,
}
UID = "11111111-2222-3333-4444-555555555555"
IMAGE = "example.org/millrace-jobs:0.1.0"
AUTH = "trips-by-cell-auth-0123456789"


def query_of(text: str) -> StreamQuery:
    """Return the query of a document."""
    return read_query(yaml.safe_load(text))


def objects_of(
    text: str, namespace: str = "cabs", uid: str = UID, defaults: PodDefaults | None = None
) -> list[Manifest]:
    """Return the query's objects under its first plan."""
    query = query_of(text)
    running, plan = not query.spec.suspend, Plan.initial(query.spec)
    replicas = Partitioners(plan.replicas, IMAGE) if plan.placement is Placement.DEDICATED else None
    owner = Owner(namespace, query.name, uid)
    metadata = query.metadata.model_copy(update={"namespace": namespace})
    query = query.model_copy(update={"metadata": metadata})
    return objects(
        query, owner, plan, defaults or PodDefaults(IMAGE), running=running, auth=AUTH, partitioners=replicas
    )


def golden(text: str) -> str:
    """Return the query's objects in the golden file."""
    return to_yaml(*objects_of(text))
