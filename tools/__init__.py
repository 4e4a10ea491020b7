"""Developer tools: what `make` runs and no user does."""
