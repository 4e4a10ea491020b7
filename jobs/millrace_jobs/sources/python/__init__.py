"""Records that a class of the user's own reads. Imports no other source."""
