"""Mutated files and states against every reader: a typed error or a result, and nothing else."""
