"""What the operator tells of itself: metrics, probes and logs."""
