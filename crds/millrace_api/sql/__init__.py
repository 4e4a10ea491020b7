"""SQL as Millrace reads it: parsing, names and types, and what Spark cannot run as a stream."""
