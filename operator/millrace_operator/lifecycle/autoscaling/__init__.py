"""Scaling of running queries on a cluster: what the scaler gets, when it is asked, and what is reported of its answer.

``autoscaler`` is the loop. ``scaling_inputs`` has what the scaler gets beside metrics, with the room that
``quota_room`` finds; ``scaling_status`` has what a status says of the decision. The decision itself
is made in ``millrace_operator.scaling``.
"""
