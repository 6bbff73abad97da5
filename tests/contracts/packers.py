"""Every packer of quire with one interface, for the rules that hold for all of them.

A packer takes documents of unique tokens and gives rows in one normal form. To put a new packer
under contract, add one line to `PACKERS`; built-in strategies are in it already.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import quire
from quire.blocks import BlockOptions, pack_texts
from quire.collate import DataCollatorForCausalLM, PaddingFreeCollator, VisionPaddingFreeCollator
from quire.compat.bins import pack_sequences_optimized
from quire.plan.strategies import BUILT_IN
from quire.stream import open_stream
from quire.vision import PackedVLDataset

PAD, BOS, EOS, FIRST = 0, 1, 2, 10
"""Ids of the special tokens, and the first id that a document may use."""
NO_LABEL = -100


class Numbers:
    """A tokenizer whose texts are the token ids themselves: ``"10 11"`` gives 10 and 11."""

    pad_token_id, bos_token_id, eos_token_id = PAD, BOS, EOS
    vocab_size = 1 << 16

    def __call__(self, texts: list[str]) -> dict[str, list[list[int]]]:
        return {"input_ids": [[_number(word) for word in text.split()] for text in texts]}


def _number(word: str) -> int:
    """Any other word has an id too: fingerprints encode a fixed text."""
    return int(word) if word.isdecimal() else len(word)


Documents = Sequence[list[int]]


@dataclass(frozen=True)
class Row:
    """One packed row without padding; ``labels`` are unshifted, as transformers takes them."""

    tokens: list[int]
    starts: list[int]
    labels: list[int]
    positions: list[int]


@dataclass(frozen=True)
class Packed:
    """The result of a packer; a packer may have no ledger."""

    rows: list[Row]
    ledger: quire.Ledger | None


@dataclass(frozen=True)
class Packer:
    """How a packer is called, and which variants of the shared rules apply to it."""

    pack: Callable[[Documents, int, Path, int], Packed]
    """Documents, the row length, an empty folder, and the seed."""
    adds_specials: bool = False
    """BOS before every document and EOS after it."""
    splits: bool = True
    """Whether a document that is longer than a row is split."""
    keeps_overlong: bool = False
    """Whether a document that is longer than a row gets a row of its own."""
    drops: bool = False
    """Whether tokens may be dropped or truncated, which the ledger must count."""
    pads: bool = True
    """Whether rows are padded to the row length; packs of samples are not."""
    cuts_anywhere: bool = False
    """Whether a row may end between any two tokens, so that BOS or EOS can be a whole fragment."""
    uses_files: bool = False
    """Slower, so fewer random examples."""


def text_of(document: Iterable[int]) -> str:
    return " ".join(map(str, document))


def collated(rows: Iterable[tuple[Sequence[int], Sequence[int]]]) -> list[Row]:
    """Rows of tokens and starts, with the labels and positions that the collator gives them."""
    collate = DataCollatorForCausalLM(Numbers(), return_tensors="np")
    made = []
    for tokens, starts in rows:
        batch = collate([{"input_ids": list(tokens), "document_starts": list(starts)}])
        labels, positions = batch["labels"][0].tolist(), batch["position_ids"][0].tolist()
        made.append(Row(list(tokens), list(starts), labels, positions))
    return made


def of_table(table: Any) -> list[Row]:
    return collated(zip(*(table[name].to_pylist() for name in COLUMNS), strict=True))


COLUMNS = ("input_ids", "document_starts")


def dataset_of_tokens(documents, max_length, folder, seed, **options) -> Packed:
    records = [{"input_ids": document} for document in documents]
    table, ledger = quire.pack_dataset(
        records, max_length=max_length, seed=seed, return_ledger=True, **options
    )
    return Packed(of_table(table), ledger)


def dataset_of_texts(documents, max_length, folder, seed, **options) -> Packed:
    records = [{"text": text_of(document)} for document in documents]
    table, ledger = quire.pack_dataset(
        records, Numbers(), max_length=max_length, seed=seed, return_ledger=True, **options
    )
    return Packed(of_table(table), ledger)


def blocks(documents, max_length, folder, seed, **options) -> Packed:
    rows = pack_texts(
        [text_of(document) for document in documents],
        Numbers(),
        BlockOptions(max_length=max_length, shuffle_output=True, seed=seed, **options),
    )
    return Packed(collated(zip(rows.input_ids, rows.document_starts, strict=True)), rows.ledger)


def bins(documents, max_length, folder, seed, **options) -> Packed:
    numbered = [quire.Document(ids, len(ids), n) for n, ids in enumerate(documents)]
    rows = pack_sequences_optimized(
        numbered, max_length, 1, 0, True, shuffle_output=True, seed=seed, **options
    )
    return Packed(collated(zip(*rows, strict=True)), None)


def corpus(documents, max_length, folder, seed, **options) -> Packed:
    source = folder / "documents.jsonl"
    source.write_text("".join(json.dumps({"text": text_of(ids)}) + "\n" for ids in documents))
    options = {"max_length": max_length, "seed": seed, **options}
    result = quire.pack_corpus([source], folder / "out", Numbers(), **options)
    if options.get("index_only"):
        rows = quire.PackedDataset(folder / "out")
        pairs = [tuple(row[name].tolist() for name in COLUMNS) for row in rows]
        return Packed(collated(pairs), result.ledger)
    shards = sorted((folder / "out").glob("data/*.parquet"))
    return Packed(
        [row for shard in shards for row in of_table(pq.read_table(shard))], result.ledger
    )


def online(documents, max_length, folder, seed, **options) -> Packed:
    """`OnlinePacker` takes documents that fit, so longer ones are cut here."""
    packer = quire.OnlinePacker(max_length, 4, **options)
    pieces = [
        document[start : start + max_length]
        for document in documents
        for start in range(0, len(document), max_length)
    ]
    rows = [row for key, piece in enumerate(pieces) for row in packer.add(key, len(piece))]
    made = []
    for row in [*rows, *packer.flush()]:
        parts = [pieces[key] for key in row]
        starts = np.cumsum([0, *(len(part) for part in parts[:-1])]).tolist()
        made.append(([token for part in parts for token in part], starts))
    return Packed(collated(made), None)


def stream(documents, max_length, folder, seed, *, mode: str) -> Packed:
    """Windows of ``max_length`` tokens, put together from the batches of two streams.

    The last token of a window is only a label. With boundary loss every such label is there;
    without it, a label that is left out says that its token starts a fragment.
    """
    source = folder / "documents.jsonl"
    source.write_text("".join(json.dumps({"text": text_of(ids)}) + "\n" for ids in documents))
    config = {
        "data": {
            **{"files": [str(source)], "packing_mode": mode, "packing_buffer_docs": 4},
            **{"repeat": False, "seed": seed, "emit_position_ids": True},
            "tokenizer": {"add_bos": True},
        },
        "train": {"seq_len": max_length - 1, "batch_size": 1},
    }
    rows = []
    with (
        open_stream(config, tokenizer=Numbers()) as masked,
        open_stream(
            {**config, "data": {**config["data"], "mask_boundary_loss": False}},
            tokenizer=Numbers(),
        ) as unmasked,
    ):
        for batch, complete in zip(masked, unmasked, strict=True):
            rows.append(_window(batch, complete))
        return Packed(rows, masked.ledger)


def _window(batch: Any, complete: Any) -> Row:
    ids, segments, positions = (
        getattr(batch, name)[0, 0].tolist() for name in ("input_ids", "segment_ids", "position_ids")
    )
    labels, targets = batch.labels[0, 0].tolist(), complete.labels[0, 0].tolist()
    length = sum(number > 0 for number in segments)
    assert segments == segments[:length] + [0] * (len(segments) - length), "padding is at the end"
    assert labels[length:] == targets[length:] == [NO_LABEL] * (len(segments) - length)
    if targets[length - 1] != NO_LABEL:  # a full window: its last token is only a label
        ids, length = [*ids[:length], targets[-1]], length + 1
        is_new = labels[-1] == NO_LABEL
        segments = [*segments, segments[-1] + is_new]
        positions = [*positions, 0 if is_new else positions[-1] + 1]
    starts = [n for n in range(length) if n == 0 or segments[n] != segments[n - 1]]
    assert [segments[start] for start in starts] == list(range(1, len(starts) + 1))
    return Row(ids[:length], starts, [NO_LABEL, *labels[: length - 1]], positions[:length])


def vision(documents, max_length, folder, seed, *, known: bool, **options) -> Packed:
    samples = [{"input_ids": ids, "labels": ids, "number": n} for n, ids in enumerate(documents)]
    packs = PackedVLDataset(
        samples if known else _InOrder(samples),
        packing_length=max_length,
        packing_buffer=8,
        seed=seed,
        lengths=[len(ids) for ids in documents] if known else None,
        **options,
    )
    rows = [_flat_row(pack) for pack in packs]
    return Packed(rows, packs.telemetry().ledger)


class _InOrder:
    """An iterable of samples whose lengths are unknown until they are read."""

    def __init__(self, samples: list[dict[str, Any]]) -> None:
        self._samples = samples

    def __iter__(self):
        return iter(self._samples)


def _flat_row(pack: list[dict[str, Any]]) -> Row:
    """The layout of the pack by both padding-free collators, which must agree."""
    text = PaddingFreeCollator(return_tensors="np")(pack)
    image = VisionPaddingFreeCollator(return_tensors="np")([pack])
    for name in ("input_ids", "labels", "cu_seq_lens_q"):
        assert np.array_equal(text[name], image[name])
    assert np.array_equal(text["position_ids"], image["position_ids"][0])
    ids, labels, positions = (
        text[name][0].tolist() for name in ("input_ids", "labels", "position_ids")
    )
    return Row(ids, text["cu_seq_lens_q"][:-1].tolist(), labels, positions)


_text = partial(Packer, adds_specials=True)
_files = partial(Packer, adds_specials=True, uses_files=True)
_vision = partial(Packer, splits=False, pads=False)
_with_long = partial(_vision, keeps_overlong=True)

PACKERS: dict[str, Packer] = {
    **{f"dataset {name}": Packer(partial(dataset_of_tokens, strategy=name)) for name in BUILT_IN},
    "dataset fill": Packer(partial(dataset_of_tokens, overlong="fill")),
    "dataset drop": Packer(partial(dataset_of_tokens, overlong="drop"), splits=False, drops=True),
    "dataset truncate": Packer(
        partial(dataset_of_tokens, overlong="truncate"), splits=False, drops=True
    ),
    "dataset of texts": _text(partial(dataset_of_texts, add_bos=True)),
    "blocks": _text(partial(blocks, packed=False)),
    "blocks greedy": _text(partial(blocks, packed=True)),
    "blocks best_fit": _text(partial(blocks, packed=True, packing_strategy="best_fit")),
    "blocks first_fit": _text(partial(blocks, packed=True, packing_strategy="first_fit")),
    "blocks cut": _text(partial(blocks, packed=True, overflow=False), splits=False, drops=True),
    "bins best_fit": Packer(partial(bins, strategy="best_fit")),
    "corpus best_fit": _files(partial(corpus, add_bos=True)),
    "corpus wrapped": _files(partial(corpus, add_bos=True, strategy="wrapped")),
    "corpus index": _files(partial(corpus, add_bos=True, index_only=True)),
    "online": Packer(online),
    "stream wrapped": _files(partial(stream, mode="sequential"), cuts_anywhere=True),
    "stream first_fit": _files(partial(stream, mode="bin")),
    "stream online": _files(partial(stream, mode="online")),
    "vision known": _with_long(partial(vision, known=True, packing_drop_last=False)),
    "vision unknown": _with_long(partial(vision, known=False, packing_drop_last=False)),
    "vision known, last dropped": _with_long(partial(vision, known=True), drops=True),
    "vision unknown, last dropped": _with_long(partial(vision, known=False), drops=True),
    "vision without long": _vision(
        partial(vision, known=True, packing_allow_single_long=False), drops=True
    ),
}
