"""Benchmarks: `make bench CASE=NAME`, or `python -m bench.NAME`, prints a line of JSON for each figure, nothing else.

A line is `{"case", "metric", "value", "unit", "goal", "better"}`; `goal` is null for figures that put others into
proportion. What goes on meanwhile is said on standard error. Figures are of this machine, with whatever else it does.
"""
