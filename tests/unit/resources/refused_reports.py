"""Cases of ``refused.REFUSED`` about labels, the event log and lineage."""

RECEIVER = {"url": "https://marquez.example.com/api/v1/lineage"}

REPORTS = [
    (
        "files",
        {"files": ["s3a://lake/events/**"]},
        {"eventLog": {"path": "s3a://lake/events/spark"}},
        {"eventLog": {"path": "s3a://lake/other"}},
        'spec.eventLog.path: "s3a://lake/other" is not allowed',
    ),
    (
        "lineage",
        {"lineage": ["https://marquez.example.com/**"]},
        {"lineage__http": RECEIVER},
        {"lineage__http": {"url": "https://evil.example.com/api/v1/lineage"}},
        'spec.lineage.http.url: "https://evil.example.com/api/v1/lineage" is not allowed in namespace cabs; '
        "write a value that matches one of https://marquez.example.com/**",
    ),
    (
        "lineage",
        {"lineage": ["https://marquez.example.com/**"]},
        {"lineage": {"http": RECEIVER, "namespace": "cabs"}},
        {"lineage": {"http": RECEIVER, "namespace": "payments"}},
        'spec.lineage.namespace: "payments" is not allowed in namespace cabs; leave it out',
    ),
    (
        "labels",
        {"labels": {"team": ["payments", "risk-*"]}},
        {"labels": {"team": "risk-1"}},
        {"labels": {"team": "rides"}},
        'spec.labels[team]: the label "team" with the value "rides" is not allowed in namespace cabs; '
        'write labels: {"team": ...} with a value that matches one of payments, risk-*',
    ),
    (
        "labels",
        {"labels": {"team": ["payments"]}},
        {"labels": {"team": "payments"}},
        {},
        'spec.labels: a pod without the label "team" is not allowed in namespace cabs; '
        'write labels: {"team": ...} with a value that matches one of payments',
    ),
    (
        "labels",
        {"labels": {"team": ["payments"]}},
        {"labels": {"team": "payments"}},
        {"labels": {"team": "payments"}, "executors__podTemplate": {"metadata": {"labels": {"team": "rides"}}}},
        'spec.executors.podTemplate.metadata.labels: the label "team" with the value "rides" is not allowed',
    ),
]
