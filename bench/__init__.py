"""Benches, one per hot path; `make bench` runs them all. Only ratios within one run mean anything."""
