"""A simulated job and cluster, and the scaling policies of other autoscalers, to compare with Millrace's.

Used by ``millrace simulate`` and ``bench.arena``. It imports the operator's models, and nothing of Kubernetes.
"""
