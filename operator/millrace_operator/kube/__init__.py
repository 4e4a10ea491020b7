"""What the operator asks of the API server: one file per kind of question."""
