"""Compare a packed dataset with the inputs that it was made from.

The inputs are read and encoded again, by other code than that which packs: `files` finds the files
and reads their records, `documents` turns records into tokens, and `check` compares them with what
the output holds.
"""

from quire.verify.inputs.check import require_inputs, verify_inputs

__all__ = ["require_inputs", "verify_inputs"]
