"""What is done at an event: it is noted what was seen, and whose state may have to change. One file per kind."""
