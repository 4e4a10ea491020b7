"""Cases of ``refused.REFUSED`` about queues and priorities of batch schedulers."""

QUEUED = {"scheduler": "Kueue", "queue": "team-a"}

SCHEDULING = [
    (
        "queues",
        {"queues": ["team-a", "root.cabs.*"]},
        {"scheduling": {"scheduler": "YuniKorn", "queue": "root.cabs.streams"}},
        {"scheduling": {"scheduler": "Kueue", "queue": "team-b"}},
        'spec.scheduling.queue: "team-b" is not allowed in namespace cabs; write a value that matches one of team-a, '
        "root.cabs.*",
    ),
    (
        "priorityClasses",
        {"priorityClasses": ["streaming", "batch-*"]},
        {"scheduling": QUEUED | {"priorityClass": "batch-low"}},
        {"scheduling": QUEUED | {"priorityClass": "system-cluster-critical"}},
        'spec.scheduling.priorityClass: "system-cluster-critical" is not allowed in namespace cabs; write a value that '
        "matches one of streaming, batch-*",
    ),
    (
        "priorityClasses",
        {"priorityClasses": []},
        {"scheduling": QUEUED},
        {"executors__podTemplate": {"spec": {"priorityClassName": "high"}}},
        'spec.executors.podTemplate.spec.priorityClassName: "high" is not allowed in namespace cabs; leave it out: the '
        "policy allows none",
    ),
]
