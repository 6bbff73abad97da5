"""A corpus that every machine has: the Python standard library's own source.

Every short top-level function and class is a document, one line of JSON each.
"""

from __future__ import annotations

import ast
import json
import sysconfig
from pathlib import Path


def write_corpus(path: Path, num_files: int = 40, max_length: int = 400) -> Path:
    """The path of a file with the documents of the first modules."""
    sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:num_files]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for source in sources:
            text = source.read_text(encoding="utf-8")
            lines = text.splitlines(keepends=True)
            for node in ast.parse(text).body:
                if isinstance(node, ast.FunctionDef | ast.ClassDef):
                    document = "".join(lines[node.lineno - 1 : node.end_lineno])
                    if len(document) <= max_length:
                        print(json.dumps({"text": document}), file=file)
    return path


def config(path: Path, **train: int) -> dict:
    """A stream of bytes from that corpus; keywords are options of ``train``."""
    return {
        "data": {
            "backend": "files",
            "files": [str(path)],
            "packing_mode": "online",
            "shuffle_buffer_size": 256,
            "tokenizer": {"kind": "byte"},
        },
        "train": train,
    }
