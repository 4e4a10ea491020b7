"""Batch times: what a job's batches cost, learned from its reports, and what they would take under another plan."""
