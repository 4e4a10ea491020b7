"""One scaling policy per file, each saying where its rules come from."""
