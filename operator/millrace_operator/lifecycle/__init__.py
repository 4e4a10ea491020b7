"""Reconciliation of queries: observe, compute the next step, write the status, act; and scaling, which decides sizes.

It imports resources, scaling, metrics_source and telemetry. The API server is behind ``reconcile.Queries`` and
``reconcile.Objects``, which ``kube`` implements.
"""
