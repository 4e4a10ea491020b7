"""Partitioner replicas in processes of their own (``placement: Dedicated``), and the job's side of them.

Replicas read the raw topics in a consumer group, project and place their records, and write them in packs to the
routed topic, whose partition is the worker. A manifest of each interval lists its packs. The job's source reads whole
manifests, so that a micro-batch neither decodes nor routes. docs/dedicated.md has the protocol.
"""
