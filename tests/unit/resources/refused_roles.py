"""Cases of ``refused.REFUSED`` about roles in AWS that logins to Kafka assume."""

OURS, THEIRS = "arn:aws:iam::123456789012:role/streams-trips", "arn:aws:iam::123456789012:role/billing/streams-trips"


def _login(**role):
    return {"mechanism": "OAUTHBEARER", "awsMskIam": {"region": "eu-west-1", **role}}


def _results(**role):
    return {"sink": {"kafka": {"bootstrapServers": "kafka:9092", "topic": "out", "sasl": _login(**role)}}}


ROLES = [
    (
        "roleArns",
        {"roleArns": ["arn:aws:iam::123456789012:role/streams-*"]},
        {"sources__trips__kafka__sasl": _login(roleArn=OURS), **_results()},
        {"sources__trips__kafka__sasl": _login(roleArn=THEIRS)},
        f'spec.sources.trips.kafka.sasl.awsMskIam.roleArn: "{THEIRS}" is not allowed in namespace cabs; '
        "write a value that matches one of arn:aws:iam::123456789012:role/streams-*",
    ),
    (
        "roleArns",
        {"roleArns": []},
        _results(),
        _results(roleArn=OURS),
        f'spec.sink.kafka.sasl.awsMskIam.roleArn: "{OURS}" is not allowed in namespace cabs; leave it out',
    ),
]
