"""What the operator and the jobs share and is not API; it imports the API, and neither of them."""
