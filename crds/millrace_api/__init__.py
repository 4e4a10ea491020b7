"""The typed API of Millrace: StreamQuery, Plan, status, and the errors that every part raises."""
