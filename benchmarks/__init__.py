"""Measurements against peers, both sides in one process; `make bench` runs them all."""
