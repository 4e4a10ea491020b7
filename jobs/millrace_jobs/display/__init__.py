"""The output of ``millrace run``: a live table in a terminal, plain lines elsewhere, and a summary at the end."""
