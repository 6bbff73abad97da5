"""mutmut, which tries mutants in a random order that depends only on their names.

`python -m tools.mutmut_in_random_order run [NAME ...]`, as `make mutants` does. A run that is
interrupted has tried a random sample of all mutants, whatever their module and however long their
tests take; the same command continues with the others.
"""

from __future__ import annotations

import hashlib


def place_of(mutant: str) -> str:
    """What mutants are sorted by.

    >>> place_of("quire.seals.x_renamed__mutmut_1")[:8]
    '183d92e4'
    """
    return hashlib.sha256(mutant.encode()).hexdigest()


if __name__ == "__main__":
    import mutmut.__main__ as mutmut  # an extra

    mutmut.estimated_worst_case_time = place_of  # mutmut sorts mutants by this function
    mutmut.cli()
