"""Batch times of real queries in local Spark, and how well the operator's calibration predicts unseen ones.

python -m bench.scaling.measure       measures the points (about an hour on two cores)
python -m bench.scaling.report        predicts the held-out points, prints the errors and draws the plot
python -m bench.scaling.calibrated    predicts plans that a run of ``millrace calibrate`` has not seen
"""
