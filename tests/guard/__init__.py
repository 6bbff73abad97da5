"""Digests of what every path emits for fixed options and seeds, compared after each refactoring.

Each case returns named parts (rows, ledger, state, ...), and `digests.json` holds a digest of each.
`python -m tests.guard` records a change of behaviour that is meant; the commit says why.
"""
