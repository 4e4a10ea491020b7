"""Schemas of messages, for sources and sinks alike: registries, and what Protobuf and Avro schemas say and refer to.

Imports secrets and the API; no source and no sink.
"""
