"""Every target by name, each with its share of the executions: the cheap ones get more.

Those that begin with ``control_`` do wrong on purpose. A module is imported when one of its targets
is asked for: some take long.
"""

from __future__ import annotations

from importlib import import_module

from tests.fuzz.target import Target

SHARES = {
    "states": {"stream_state": 8, "stream_state_file": 180, "batches_state": 6, "loader_state": 180,
               "online_state": 180},
    "visions": {"vision_state": 10, "vision_images": 10},
    "outputs": {"manifest": 4, "manifest_verified": 2, "index": 2, "index_verified": 1, "shard": 1,
                "plan": 30},
    "journals": {"commits": 6, "resumed_run": 1},
    "tables": {"arrow_input": 30, "parquet_input": 30, "hostile_offsets": 20, "view": 10},
    "texts": {"recipe": 5, "config": 20, "config_override": 40, "jsonl": 100, "jsonl_gz": 20,
              "jsonl_zst": 20, "tokenizer_json": 40, "tokenizer_engine": 4,
              "document_starts": 120},
    "corpora": {"corpus_megatron": 60, "corpus_datatrove": 40, "corpus_olmo": 30,
                "corpus_olmo_scan": 60, "corpus_llmc": 60, "corpus_mds": 30, "corpus_mds_zstd": 15,
                "corpus_litdata": 40, "corpus_nemo": 8, "corpus_token_arrow": 15,
                "corpus_token_parquet": 8},
    "controls": dict.fromkeys(
        ("control_socket", "control_read_outside", "control_write_outside", "control_read_unheard",
         "control_remove_outside", "control_program", "control_code", "control_pickle",
         "control_key_error", "control_swallowed", "control_hang", "control_memory",
         "control_overflow", "control_crash"), 1
    ),
}  # fmt: skip
NAMES = [name for names in SHARES.values() for name in names if not name.startswith("control_")]
CONTROLS = list(SHARES["controls"])


def share_of(name: str) -> int:
    """The target's share."""
    return next(shares[name] for shares in SHARES.values() if name in shares)


def load_target(name: str) -> Target:
    """The target, from its module."""
    module = next(module for module, shares in SHARES.items() if name in shares)
    found: dict[str, Target] = import_module(f"tests.fuzz.targets.{module}").TARGETS
    return found[name]
