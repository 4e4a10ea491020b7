"""Grafana dashboards, one file each; ``python -m monitoring.dashboards FOLDER`` writes them as JSON."""
