"""Batch times: what a job's batches cost, learned from its reports, and what they would take under another shape.

It imports observations and shapes, and nothing of decisions.
"""
