"""What the operator and the jobs share and is not API: HTTP server, back-off, batch sizes, refusals, plot files.

It imports the API, and neither the operator nor the jobs.
"""
