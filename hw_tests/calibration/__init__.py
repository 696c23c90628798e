"""Measure how fast ``mori.io`` is, and turn the table into a fabric that the simulator takes.

``python -m hw_tests.calibration --help``. `measure` runs on an arm and stays within Python 3.10,
like `rows`; `model` and `fit` find a fabric's numbers; `report` writes them, and compares simulated
with measured latencies.
"""
