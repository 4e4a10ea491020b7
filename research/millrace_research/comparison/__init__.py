"""``millrace bench partitioners``: a comparison of partitioners on a recorded stream.

Imports partitioners and sources, and no Spark.
"""
