"""What policies refuse of references to Connections and Secrets; entries are those of ``refused.REFUSED``."""

REFERRING = {"connection": "trips", "bootstrapServers": "kafka:9092", "topic": "trips"}
LOGIN = {
    "sasl": {
        "mechanism": "PLAIN",
        "username": {"secretKeyRef": {"name": "platform", "key": "user"}},
        "password": {"secretKeyRef": {"name": "platform", "key": "password"}},
    }
}


def mounting(volume):
    return {"driver__podTemplate": {"spec": {"volumes": [{"name": "more", **volume}]}}}


def variable(name):
    env = [{"name": "A", "valueFrom": {"secretKeyRef": {"name": name, "key": "a"}}}]
    return {"executors__podTemplate": {"spec": {"containers": [{"name": "executor", "env": env}]}}}


def projected(name):
    return {"projected": {"sources": [{"secret": {"name": name}}]}}


SECRETS = {"secrets": ["own-*"]}

REFUSED_REFERENCES = [
    (
        "connections",
        {"connections": ["trips", "team-*"]},
        {"sources__trips__kafka": REFERRING},
        {"sources__trips__kafka": REFERRING | {"connection": "platform"}},
        'spec.sources.trips.kafka.connection: "platform" is not allowed in namespace cabs; write a value that matches one of trips',
    ),
    (
        "connections",
        {"connections": [], "brokers": ["kafka:9092"]},
        {"sources__trips__kafka__bootstrapServers": "kafka:9092"},
        {"sources__trips__kafka": REFERRING},
        'spec.sources.trips.kafka.connection: "trips" is not allowed in namespace cabs; leave it out',
    ),
    (
        "brokers",
        {"connections": ["trips"], "brokers": ["kafka:9092"]},
        {"sources__trips__kafka": REFERRING},
        {"sources__trips__kafka": REFERRING | {"bootstrapServers": "evil:9092"}},
        'spec.sources.trips.kafka.bootstrapServers: "evil:9092" is not allowed',
    ),
    (
        "secrets",
        SECRETS | {"connections": ["trips"]},
        {"sources__trips__kafka": REFERRING | LOGIN},
        {"sources__trips__kafka": {"bootstrapServers": "kafka:9092", "topic": "trips"} | LOGIN},
        'spec.sources.trips.kafka.sasl.username.secretKeyRef.name: "platform" is not allowed in namespace cabs',
    ),
    (
        "secrets",
        SECRETS,
        mounting({"secret": {"secretName": "own-ca"}}),
        {"sources__trips__kafka": REFERRING | LOGIN},
        'spec.sources.trips.kafka.sasl.username.secretKeyRef.name: "platform" is not allowed in namespace cabs',
    ),
    (
        "secrets",
        SECRETS,
        mounting({"secret": {"secretName": "own-ca"}}),
        mounting({"secret": {"secretName": "platform"}}),
        'spec.driver.podTemplate.spec.volumes[0].secret.secretName: "platform" is not allowed in namespace cabs',
    ),
    (
        "secrets",
        SECRETS,
        mounting(projected("own-ca")),
        mounting(projected("platform")),
        'spec.driver.podTemplate.spec.volumes[0].projected.sources[0].secret.name: "platform" is not allowed',
    ),
    (
        "secrets",
        SECRETS,
        variable("own-ca"),
        variable("platform"),
        "spec.executors.podTemplate.spec.containers[0].env[0].valueFrom.secretKeyRef.name: "
        '"platform" is not allowed in namespace cabs',
    ),
]
