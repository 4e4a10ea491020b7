"""The part of Millrace that runs in Spark: the data path of a StreamQuery, from source slices to the sink."""
