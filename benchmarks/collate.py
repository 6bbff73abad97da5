"""A batch of 8 rows of 4,096 tokens, full of random documents, from arrays and lists in memory to
torch tensors. Every form is compared with a copy of an int64 array of that size in warm memory, the
minimum for any collator. transformers' `DataCollatorWithFlattening` gets the same documents one by
one, as lists, which is what it accepts; it makes one row of 32,768 tokens, as our
`PaddingFreeCollator` does from the same features. The mask for flex attention is built for one row
of 131,072 tokens, ours from segment bounds, PyTorch's by evaluating the mask function for all
pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from types import SimpleNamespace

import numpy as np

from benchmarks.harness import Table, best_of_interleaved, ratio
from quire.boundaries import Boundaries

TITLE = "Collation"
ROWS, TOKENS = 8, 4096
DOCUMENTS_PER_ROW = (8, 64)
LONG_ROW = 131_072


def run() -> list[Table]:
    return [_forms(), _collators(), _block_masks()]


def random_starts(num_documents: int, length: int, rng: np.random.Generator) -> np.ndarray:
    inside = rng.choice(np.arange(1, length), num_documents - 1, replace=False)
    return np.append(0, np.sort(inside))


def _forms() -> Table:
    table = Table(
        f"Forms of the boundaries of [{ROWS}, {TOKENS}]",
        ["documents per row", "form", "time", "int64 copies"],
        "`Boundaries` checks and joins the starts of all rows; the forms are made from it.",
    )
    rng = np.random.default_rng(0)
    copied = np.arange(ROWS * TOKENS)
    for num_documents in DOCUMENTS_PER_ROW:
        starts = [random_starts(num_documents, TOKENS, rng) for _ in range(ROWS)]
        lengths = [TOKENS] * ROWS
        batch = Boundaries.of_rows(starts, lengths)
        forms: dict[str, Callable[[], object]] = {
            "int64 copy": copied.copy,
            "Boundaries": lambda starts=starts, lengths=lengths: Boundaries.of_rows(
                starts, lengths
            ),
            "position ids": batch.position_ids,
            "segment ids": batch.segment_ids,
            "seq_idx": batch.seq_idx,
            "cu_seqlens": batch.cu_seqlens,
        }
        times = _times(forms, calls=200)
        for name, seconds in times.items():
            share = ratio(seconds / times["int64 copy"])
            table.add(num_documents, name, _duration(seconds), share)
    return table


def _collators() -> Table:
    from transformers import DataCollatorWithFlattening

    from quire.collate import DataCollatorForCausalLM, PaddingFreeCollator

    peer = f"transformers {version('transformers')} DataCollatorWithFlattening"
    table = Table(
        f"Whole collators on {ROWS * TOKENS:,} tokens",
        ["documents per row", "collator", "features", "time", "transformers takes"],
        f"The peer is {peer} with `return_flash_attn_kwargs` and `return_seq_idx`, which is what "
        "`PaddingFreeCollator` returns always.",
    )
    rng = np.random.default_rng(0)
    stacked = DataCollatorForCausalLM(SimpleNamespace(pad_token_id=0, eos_token_id=2))
    flat = PaddingFreeCollator()
    theirs = DataCollatorWithFlattening(return_flash_attn_kwargs=True, return_seq_idx=True)
    for num_documents in DOCUMENTS_PER_ROW:
        rows, row_lists, documents = packed_features(num_documents, rng)
        sides: dict[tuple[str, str], Callable[[], object]] = {
            ("DataCollatorWithFlattening", "documents, lists"): lambda d=documents: theirs(d),
            ("PaddingFreeCollator", "documents, lists"): lambda d=documents: flat(d),
            ("PaddingFreeCollator", "packed rows, lists"): lambda r=row_lists: flat(r),
            ("PaddingFreeCollator", "packed rows, arrays"): lambda r=rows: flat(r),
            ("DataCollatorForCausalLM", "packed rows, lists"): lambda r=row_lists: stacked(r),
            ("DataCollatorForCausalLM", "packed rows, arrays"): lambda r=rows: stacked(r),
        }
        times = _times(sides, calls=10)
        slowest = times["DataCollatorWithFlattening", "documents, lists"]
        for (name, features), seconds in times.items():
            table.add(num_documents, name, features, _duration(seconds), ratio(slowest / seconds))
    return table


def packed_features(num_documents: int, rng: np.random.Generator) -> tuple[list, list, list]:
    rows = [
        {
            "input_ids": rng.integers(3, 50_000, TOKENS),
            "document_starts": random_starts(num_documents, TOKENS, rng),
        }
        for _ in range(ROWS)
    ]
    row_lists = [{name: values.tolist() for name, values in row.items()} for row in rows]
    documents = [
        {"input_ids": ids.tolist()}
        for row in rows
        for ids in np.split(row["input_ids"], row["document_starts"][1:])
    ]
    return rows, row_lists, documents


def _block_masks() -> Table:
    from torch.nn.attention.flex_attention import create_block_mask

    from quire.masks.flex import block_mask, mask_mod

    table = Table(
        f"BlockMask of one row of {LONG_ROW:,} tokens",
        ["documents", "made by", "time", "PyTorch takes"],
        f"PyTorch {version('torch')}, `create_block_mask` in eager mode with the same mask "
        "function. It evaluates every pair of tokens, and so it is measured on 8,192 tokens: the "
        "long row has 256 times as many pairs (17 GB as bytes).",
    )
    short = 8_192
    for num_documents in (32, 1024):
        starts = random_starts(num_documents, LONG_ROW, np.random.default_rng(0))
        segments = Boundaries.of_rows([starts], [LONG_ROW]).segment_ids()
        part = segments[:, :short]
        mod = mask_mod(part)
        sides: dict[str, Callable[[], object]] = {
            f"PyTorch, {short:,} tokens": lambda mod=mod: create_block_mask(
                mod, 1, None, short, short, device="cpu"
            ),
            f"quire, {short:,} tokens": lambda part=part: block_mask(part),
            f"quire, {LONG_ROW:,} tokens": lambda segments=segments: block_mask(segments),
        }
        times = _times(sides, calls=1, repeats=5)
        slowest = times[f"PyTorch, {short:,} tokens"]
        for name, seconds in times.items():
            share = ratio(slowest / seconds) if f"{short:,}" in name else ""
            table.add(num_documents, name, _duration(seconds), share)
    return table


def _times(sides: dict, calls: int, repeats: int = 9) -> dict:
    """Seconds per call; several calls are one measurement, as one is too short to time."""

    def several(function: Callable[[], object]) -> Callable[[], None]:
        def repeat() -> None:
            for _ in range(calls):
                function()

        return repeat

    best = best_of_interleaved(repeats, *map(several, sides.values()))
    return {name: seconds / calls for name, seconds in zip(sides, best, strict=True)}


def _duration(seconds: float) -> str:
    return f"{1e6 * seconds:,.1f} µs" if seconds < 1e-4 else f"{1e3 * seconds:,.2f} ms"
