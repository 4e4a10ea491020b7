"""The typed API of Millrace: StreamQuery, Plan, status, and the errors every part reports with."""
