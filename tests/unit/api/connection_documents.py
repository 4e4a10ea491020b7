"""A connection as a document."""

from __future__ import annotations

CONNECTION = """\
apiVersion: millrace.io/v1alpha1
kind: Connection
metadata: {name: trips}
spec:
  kafka:
    bootstrapServers: kafka:9093
    tls: {}
    sasl: {mechanism: PLAIN, username: {env: KAFKA_USER}, password: {env: KAFKA_PASSWORD}}
    options: {client.rack: a}
    registry: {url: "https://registry", login: {token: {env: REGISTRY_TOKEN}}}
"""
