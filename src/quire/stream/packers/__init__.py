"""Documents to windows, one packer a file; all keep one contract."""

from quire.stream.packers.packer import Packer
from quire.stream.packers.table import make_packer

__all__ = ["Packer", "make_packer"]
