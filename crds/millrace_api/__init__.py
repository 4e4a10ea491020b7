"""The typed API of Millrace: StreamQuery, Plan, status, and the errors that every part raises.

It imports no other package of Millrace, and neither Spark nor Kubernetes.
"""
