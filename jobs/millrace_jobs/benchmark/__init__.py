"""``millrace bench partitioners``: a comparison of partitioners on a recorded stream."""
