"""Models of streaming jobs, and decisions about their size. Pure: no Kubernetes, no HTTP; the clock is an argument."""
