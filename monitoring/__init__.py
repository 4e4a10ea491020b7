"""What is known of a running Millrace: rules for Prometheus with their tests, and dashboards for Grafana."""
