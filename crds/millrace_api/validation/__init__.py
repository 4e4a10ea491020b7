"""Files and objects to queries, with every problem at once, each with its place and what to write instead."""
