"""Look-ups in the table of a running query: what they cost its batches, how long they take, and if they are right."""
