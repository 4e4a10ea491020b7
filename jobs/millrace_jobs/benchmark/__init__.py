"""How partitioners do on a recorded stream, side by side: ``millrace bench partitioners``."""
