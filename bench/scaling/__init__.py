"""Batch times of real queries in local Spark, and how well the operator's calibration predicts those it has not seen.

python -m bench.scaling.measure    measures the points (about an hour on two cores)
python -m bench.scaling.report     predicts those that were held out; prints the errors and draws the plot
"""
