"""What the operator and the jobs both need and is not API. It imports neither of them."""
