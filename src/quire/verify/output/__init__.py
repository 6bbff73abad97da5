"""Recount a packed dataset from its own files.

The package has its own readers and shares no code with the packer: a mistake made there is not
repeated here. `check` holds the entry point, `manifest` reads the manifest and the files that it
lists, `shards` recounts rows, `plans` recounts an index-only output, and `drops` derives why tokens
are missing.
"""

from quire.verify.output.check import OutputReport, verify_output

__all__ = ["OutputReport", "verify_output"]
