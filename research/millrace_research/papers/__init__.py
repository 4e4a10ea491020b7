"""The papers' own comparisons, rerun with this library on real streams and on Zipf streams."""
