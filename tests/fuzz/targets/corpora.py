"""Tokenized corpora of other systems: indexes that lie, files that were cut off, wrong offsets."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np

from quire.formats import open_corpus
from tests.formats.foreign_documents import EOS, FOLDER
from tests.fuzz.mutation import mutated_bytes, mutated_json
from tests.fuzz.target import Subject, Target, by_name

_SOURCES = {
    "megatron": ("megatron", ["uint16.idx", "uint16.bin"], "megatron:unit=sequences"),
    "datatrove": (
        "datatrove", ["long.ds", "long.ds.index", "long.ds.loss", "long.ds.metadata"], ""
    ),
    "olmo": ("olmo", ["short.npy", "short.csv.gz"], ""),
    "olmo_scan": ("olmo", ["no_metadata.npy"], f"olmo:dtype=uint16,eos={EOS}"),
    "llmc": ("llmc", ["gpt2.bin"], f"llmc:eos={EOS},at=start"),
    "mds": ("mds/ndarray", [], ""),
    "mds_zstd": ("mds/zstd", [], ""),
    "litdata": ("litdata/int32", [], ""),
    "nemo": ("nemo", [], ""),
    "token_arrow": ("hub/int32", [], "arrow"),
    "token_parquet": ("hub", ["int32.parquet"], "parquet"),
}  # fmt: skip
"""For each target a folder of fixtures, its files (none: all), and the format."""


_COMPARED = 5


def _files(folder: str, names: list[str]) -> dict[str, bytes]:
    paths = [path for path in (FOLDER / folder).iterdir() if path.is_file()]
    return {path.name: path.read_bytes() for path in paths if not names or path.name in names}


def _corpus(folder: str, names: list[str], form: str) -> Callable[[Path], Subject]:
    def prepare(here: Path) -> Subject:
        seeds = _files(folder, names)
        corpus = here / "corpus"
        corpus.mkdir()
        os.environ["QUIRE_CACHE"] = str(here / "cache")
        for name, data in seeds.items():
            (corpus / name).write_bytes(data)
        whole, changed = list(seeds.values()), sorted(set(seeds) - {"dataset_info.json"})
        # Naming a file is faster than a folder, whose files are all looked at.
        main = next(one for one in ("index.json", "state.json", *names, *seeds) if one in seeds)
        runs = [0]

        def make(choose: Random) -> tuple[Path, str, bytes]:
            name = choose.choice(changed)
            opened = choose.choice((corpus, *[corpus / main] * 7))
            if name.endswith(".json") and choose.random() < 0.7:
                text = json.dumps(mutated_json(choose, seeds[name].decode()))
                return opened, name, text.encode("utf-8", "surrogatepass")
            return opened, name, mutated_bytes(choose, seeds[name], whole)

        def read(given: tuple[Path, str, bytes]) -> str | None:
            opened, name, data = given
            runs[0] += 1
            if runs[0] % 500 == 0:
                for made in sorted((here / "cache" / "corpora").glob("*")):
                    made.unlink()
            (corpus / name).write_bytes(data)
            try:
                _read_all(opened, form or None)
            finally:
                (corpus / name).write_bytes(seeds[name])
            return None

        return Subject(make=make, read=read)

    return prepare


def _read_all(corpus: Path, form: str | None) -> None:
    """Every token is read, and counted."""
    found = open_corpus(corpus, form)
    lengths = found.lengths().astype(np.int64)
    one_by_one = [found.tokens(document) for document in range(min(_COMPARED, len(found)))]
    assert [len(tokens) for tokens in one_by_one] == lengths[:_COMPARED].tolist()
    together = found.gather("input_ids", np.arange(len(found)), lengths * 0, lengths)
    assert len(together) == lengths.sum()
    assert np.array_equal(together[: lengths[:_COMPARED].sum()], np.concatenate([[], *one_by_one]))
    for name in found.columns:
        for document in range(min(3, len(found))):
            assert len(found.values(name, document)) == lengths[document]
    assert found.ledger.check().tokens.num_dropped >= 0
    found.fingerprint()


TARGETS = by_name(
    *(
        Target(name=f"corpus_{name}", prepare=_corpus(folder, files, form))
        for name, (folder, files, form) in _SOURCES.items()
    )
)
