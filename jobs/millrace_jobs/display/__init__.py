"""What `millrace run` prints: a live table in a terminal, plain lines elsewhere, and the summary at the end."""
