"""Telemetry of the operator itself: metrics, probes and logs."""
