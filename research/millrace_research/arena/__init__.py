"""A simulated job and cluster, and the scaling policies of other autoscalers, to compare with Millrace's.

Used by ``millrace simulate`` and ``bench.arena``. Imports the operator's ``scaling``, nothing of
Kubernetes, and the API only for messages to users.
"""
