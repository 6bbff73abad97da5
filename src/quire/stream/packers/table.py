"""The packers by the names of ``data.packing_mode``."""

from __future__ import annotations

from quire.stream.options import DataOptions
from quire.stream.packers.bins import BinPacker
from quire.stream.packers.online import OnlineBinPacker
from quire.stream.packers.packer import Packer
from quire.stream.packers.sequential import SequentialPacker
from quire.stream.packers.tails import tail_of


def make_packer(options: DataOptions, window_size: int, vocab_size: int) -> Packer:
    """The packer that the options name, empty."""
    if options.packing_mode == "sequential":
        return SequentialPacker(window_size, vocab_size)
    kind = BinPacker if options.packing_mode == "bin" else OnlineBinPacker
    return kind(
        window_size,
        vocab_size,
        options.packing_buffer_docs,
        options.packing_max_docs_per_bin,
        tail_of(add_eos=options.tokenizer.add_eos),
    )
