"""Scaling policies of this and other systems, each with the source of its rules.

Imports the simulation and ``millrace_operator.scaling``; a policy sees only what ``ScalingPolicy.step`` is given.
"""
