"""Autoscaling of a job: what its metrics show, what its batches cost, and the decision about its size.

Pure: no Kubernetes, no HTTP, nothing of the API; the clock is an argument. ``capacity`` is not imported.
"""
