"""Kafka clusters: how to connect, what they hold, and what their errors mean. Knows no source and no sink."""
