"""`quire pack --index-only` over a corpus of another system: a plan, and no token is copied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow as pa

import quire
from quire.corpus.corpus_index import CorpusIndex
from quire.corpus.index import plan_name, write_plan
from quire.corpus.manifest import PackResult, require_same, with_first_plan, write_manifest
from quire.corpus.options import ROW_OPTIONS, CorpusOptions
from quire.corpus.output import opened_output, require_complete, sweep_plans, write_errors
from quire.errors import InvalidOption
from quire.formats.corpora import is_corpus, open_corpus
from quire.formats.fingerprints import FINGERPRINT
from quire.formats.token_corpus import TokenCorpus
from quire.options.names import option, setting
from quire.packed.in_place import record_of
from quire.packed.manifest import IN_PLACE, MANIFEST, read_manifest
from quire.seals import FORMAT_VERSION
from quire.storage import AnyPath, Named

_ALLOWED = (*ROW_OPTIONS, "index_only", "keep_sources", "pretokenized", "tokenizer_engine")


def pack_in_place(
    named: Sequence[Named],
    out: AnyPath,
    options: CorpusOptions,
    format: str | None = None,  # noqa: A002
    *,
    resume: bool = False,
) -> PackResult:
    """Plan the documents of a corpus of another system; its files are read in place."""
    _require_row_options(options)
    name = plan_name(options)
    with opened_output(out, resume=resume):
        corpus = open_corpus(named, format)
        header = _header(corpus, out, options)
        if (out / MANIFEST).exists():
            recorded = read_manifest(out)
            require_same(out, recorded, header)
            with write_errors(out):
                require_complete(out, recorded)
                sweep_plans(out, recorded)
            return PackResult(path=out, manifest=recorded, plan=name, was_complete=True)
        with write_errors(out):
            index = CorpusIndex(corpus=corpus)
            plan = write_plan(out, name, index, options)
            manifest = write_manifest(out / MANIFEST, with_first_plan(header, plan))
    return PackResult(path=out, manifest=manifest, plan=name)


_OF_INPUTS = ("bytes", "fingerprint")


def reads_in_place(
    named: Sequence[Named],
    options: CorpusOptions,
    format: str | None,  # noqa: A002
) -> bool:
    """Whether these inputs are a corpus of another system, whose files a plan can refer to."""
    return options.index_only and (format is not None or any(map(is_corpus, named)))


def _require_row_options(options: CorpusOptions) -> None:
    """Raise for options that decide what documents are, which another system has decided."""
    for field in fields(CorpusOptions):
        value = getattr(options, field.name)
        if field.name not in _ALLOWED and value not in (field.default, None, False):
            raise InvalidOption(
                f"{setting(field.name, value)} changes documents, but those of this corpus are "
                f"read in place as they are; leave {option(field.name)} out, or pack without "
                f"{option('index_only')}"
            )


def _header(corpus: TokenCorpus, out: AnyPath, options: CorpusOptions) -> dict[str, Any]:
    """Everything that determines the plan."""
    record = record_of(corpus, out)
    entries = {entry["path"]: entry for entry in record["files"]}
    lengths = corpus.lengths()
    return {
        "format": {
            "name": IN_PLACE,
            "version": FORMAT_VERSION,
            "quire": quire.__version__,
            "pyarrow": pa.__version__,
        },
        "options": options.to_dict(),
        "tokenizer": None,
        "columns": corpus.columns,
        "fingerprint": FINGERPRINT,
        "inputs": [
            {
                "name": file.path.name,
                "kind": corpus.format,
                **{name: entries[str(file.path.absolute())][name] for name in _OF_INPUTS},
            }
            for file in corpus.files
        ],
        "corpus": record,
        "documents": {
            "count": len(corpus),
            "tokens": int(lengths.sum(dtype=np.int64)),
            "opening": None,
            "end_with_eos": False,
            "has_labels": False,
        },
        "bad_records": {"count": 0},
        "shards": [],
    }
