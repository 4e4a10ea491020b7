"""What connections to databases have in common: references to logins, limits of time, and the wording of errors."""
