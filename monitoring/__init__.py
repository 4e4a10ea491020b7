"""Monitoring of Millrace: Prometheus rules with their tests, and Grafana dashboards."""
