"""Access to the Kubernetes API server: one file per kind of request."""
