"""Writes tests/formats/foreign: small corpora, each by the real writer of its format.

The files are in the tree, so that tests need none of these packages. To make one again, run
``python -m tests.formats.make_foreign NAME`` where its package is installed.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from importlib.metadata import version
from pathlib import Path
from unittest.mock import MagicMock

from tests.formats.foreign_documents import DOCUMENTS, EOS, FOLDER, SENTENCES, loss_of


def _stub(package: str, *modules: str) -> None:
    """Make a package importable that a writer's package imports and the writer does not use."""
    for name in (package, *(package + module for module in modules)):
        sys.modules[name] = MagicMock(__spec__=ModuleSpec(name, None))


def megatron(folder: Path) -> str:
    import numpy as np
    import torch
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

    def write(name: str, dtype: type, documents: list[list[list[int]]], modes: int | None) -> None:
        multimodal = modes is not None
        builder = IndexedDatasetBuilder(str(folder / f"{name}.bin"), dtype, multimodal)
        for document in documents:
            for sequence in document:
                tokens = torch.tensor(sequence, dtype=torch.int64)
                builder.add_item(tokens, modes) if multimodal else builder.add_item(tokens)
            builder.end_document()
        builder.finalize(str(folder / f"{name}.idx"))

    each = [[document] for document in DOCUMENTS]
    for dtype in (np.uint16, np.int32, np.int64):
        write(dtype.__name__, dtype, each, None)
    write("sentences", np.uint16, SENTENCES, None)
    write("modes_zero", np.uint16, each, 0)
    write("modes_one", np.uint16, each, 1)
    return f"megatron-core {version('megatron-core')}, IndexedDatasetBuilder"


def datatrove(folder: Path) -> str:
    import numpy as np
    from datatrove.pipeline.tokens.tokenizer import TokenizedFile

    def write(name: str, size: int, *, index: bool, loss: bool, metadata: bool) -> None:
        file = TokenizedFile(
            str(folder), f"{name}.ds", save_index=index, save_loss_metadata=loss,
            save_final_metadata=metadata, token_size=size, tokenizer_name_or_path="gpt2",
        )  # fmt: skip
        for document in DOCUMENTS:
            file.write([*document, EOS], np.array([*loss_of(document), True]) if loss else None)
        file.close()

    write("short", 2, index=True, loss=False, metadata=True)
    write("long", 4, index=True, loss=True, metadata=True)
    write("plain", 2, index=True, loss=False, metadata=False)
    write("no_index", 2, index=False, loss=False, metadata=True)
    return f"datatrove {version('datatrove')}, TokenizedFile"


def olmo(folder: Path) -> str:
    """Raw arrays, as OLMo's readers want them, and the metadata that its writer makes."""
    _stub("cached_path", ".schemes")
    import numpy as np
    from olmo_core.data.utils import write_document_indices

    for name, dtype in (("short", np.uint16), ("long", np.uint32)):
        path = folder / f"{name}.npy"
        tokens = [token for document in DOCUMENTS for token in (*document, EOS)]
        path.write_bytes(np.array(tokens, dtype).tobytes())
        write_document_indices(path, dtype=dtype, eos_token_id=EOS)
    (folder / "no_metadata.npy").write_bytes((folder / "short.npy").read_bytes())
    return f"ai2-olmo-core {version('ai2-olmo-core')}, write_document_indices"


def mds(folder: Path) -> str:
    _stub("streaming.vision")  # it needs torchvision
    import numpy as np
    from streaming import MDSWriter

    def write(name: str, encoding: str, dtype: type, **options: object) -> None:
        columns = {"tokens": encoding, "source": "str", "number": "int32"}
        with MDSWriter(columns=columns, out=str(folder / name), size_limit=400, **options) as out:
            for number, document in enumerate(DOCUMENTS):
                tokens = np.array(document, dtype)
                value = tokens.tobytes() if encoding == "bytes" else tokens
                out.write({"tokens": value, "source": "x" * number, "number": np.int32(number)})

    write("ndarray_typed", "ndarray:int32", np.int32)
    write("ndarray", "ndarray", np.uint16)
    write("bytes", "bytes", np.int64)
    write("zstd", "ndarray:uint16", np.uint16, compression="zstd:7")
    with MDSWriter(columns={"input_ids": "ndarray:uint32:4"}, out=str(folder / "fixed")) as out:
        for number in range(6):
            out.write({"input_ids": np.arange(4, dtype=np.uint32) + 10 * number})
    return f"mosaicml-streaming {version('mosaicml-streaming')}, MDSWriter"


def litdata(folder: Path) -> str:
    import torch
    from litdata.streaming import item_loader, writer

    def write(name: str, dtype: torch.dtype) -> None:
        made = writer.BinaryWriter(
            str(folder / name), chunk_bytes=120, item_loader=item_loader.TokensLoader()
        )
        for number, document in enumerate(DOCUMENTS):
            made[number] = torch.tensor(document).to(dtype)
        made.done()
        made.merge()

    write("int32", torch.int32)
    write("uint16", torch.uint16)
    return f"litdata {version('litdata')}, BinaryWriter with TokensLoader"


def llmc(folder: Path) -> str:
    """As dev/data/data_common.py of llm.c writes it: documents begin with the end of text."""
    import numpy as np

    for name, magic, number, dtype in (
        ("gpt2", 20240520, 1, np.uint16), ("llama3", 20240801, 7, np.uint32),
    ):  # fmt: skip
        tokens = np.array([t for document in DOCUMENTS for t in (EOS, *document)], dtype)
        header = np.zeros(256, np.int32)
        header[:3] = magic, number, len(tokens)
        (folder / f"{name}.bin").write_bytes(header.tobytes() + tokens.tobytes())
    ended = np.array([t for document in DOCUMENTS for t in (*document, EOS)], np.uint16)
    (folder / "nanogpt.bin").write_bytes(ended.tobytes())
    return "the layout of llm.c's data_common.write_datafile, and of nanoGPT's train.bin"


def nemo(folder: Path) -> str:
    """Rows of several sequences, with the columns of NeMo's packed parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = {"input_ids": [], "loss_mask": [], "seq_start_id": []}
    for pack in SENTENCES:
        rows["input_ids"].append([t for document in pack for t in document])
        rows["loss_mask"].append([int(v) for document in pack for v in loss_of(document)])
        rows["seq_start_id"].append([sum(map(len, pack[:n])) for n in range(len(pack))])
    kinds = {"input_ids": pa.int32(), "loss_mask": pa.int8(), "seq_start_id": pa.int32()}
    schema = pa.schema({name: pa.list_(kind) for name, kind in kinds.items()})
    pq.write_table(pa.table(rows, schema), folder / "train.idx.parquet", row_group_size=2)
    return f"pyarrow {version('pyarrow')}, columns of NeMo"


def hub(folder: Path) -> str:
    import datasets

    rows = {"input_ids": DOCUMENTS, "source": [f"s{n}" for n in range(len(DOCUMENTS))]}
    rows["loss_mask"] = [[int(v) for v in loss_of(document)] for document in DOCUMENTS]
    for kind in ("uint16", "uint32", "int32", "int64"):
        features = datasets.Features(
            {
                "input_ids": datasets.Sequence(datasets.Value(kind)),
                "source": datasets.Value("string"),
                "loss_mask": datasets.Sequence(datasets.Value("int8")),
            }
        )
        made = datasets.Dataset.from_dict(rows, features=features)
        made.save_to_disk(str(folder / kind), num_shards=2 if kind == "int32" else 1)
        made.to_parquet(str(folder / f"{kind}.parquet"), batch_size=4)
    return f"datasets {version('datasets')}, save_to_disk and to_parquet"


WRITERS: dict[str, Callable[[Path], str]] = {
    "megatron": megatron, "datatrove": datatrove, "olmo": olmo, "mds": mds, "litdata": litdata,
    "llmc": llmc, "nemo": nemo, "hub": hub,
}  # fmt: skip


def main(names: list[str]) -> None:
    origins = FOLDER / "origins.json"
    known = json.loads(origins.read_text()) if origins.exists() else {}
    for name in names or WRITERS:
        shutil.rmtree(FOLDER / name, ignore_errors=True)
        (FOLDER / name).mkdir(parents=True)
        known[name] = WRITERS[name](FOLDER / name)
    origins.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
