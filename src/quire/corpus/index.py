"""A plan over all documents of an index-only output: their lengths in memory, no token read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from quire.corpus.commits import Commit
from quire.corpus.contents import require_fitting
from quire.corpus.document_shard import DocumentShard
from quire.corpus.options import CorpusOptions
from quire.corpus.output import PLANS
from quire.corpus.seeds import shard_seed
from quire.dataset.supervision import supervised_by_labels
from quire.documents import Documents
from quire.errors import InvalidOption
from quire.files import sha256_of
from quire.formats.files import InputFile
from quire.formats.token_columns import TOKENS
from quire.ledger import Ledger, Tally, TokenTally
from quire.plan import Plan, plan_documents
from quire.plan.fragments import Fragments
from quire.plan.planner import Supervised
from quire.storage import AnyPath, RemotePath
from quire.text.option_words import words_of_packing

IntArray = npt.NDArray[np.int64]
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentIndex:
    """All documents of an output, in input order."""

    shards: Sequence[DocumentShard]
    opening: int | None
    """The token (BOS) that opens every fragment; it stands in no shard."""
    end_with_eos: bool
    has_labels: bool
    files: Sequence[str]
    """The names of the inputs."""

    @classmethod
    def of_manifest(cls, out: AnyPath, manifest: Mapping[str, Any]) -> DocumentIndex:
        """The index of a complete output."""
        about = manifest["documents"]
        return cls(
            shards=[DocumentShard.of_manifest(out, entry) for entry in manifest["shards"]],
            opening=about["opening"],
            end_with_eos=about["end_with_eos"],
            has_labels=about["has_labels"],
            files=[entry["name"] for entry in manifest["inputs"]],
        )

    @classmethod
    def of_commits(
        cls, out: AnyPath, commits: Sequence[Commit], files: Sequence[InputFile], empty: Documents
    ) -> DocumentIndex:
        """The index of what was committed; ``empty`` are no documents, but of the same kind."""
        at = empty.prefix_at
        return cls(
            shards=[DocumentShard.of_commit(out, commit) for commit in commits],
            opening=None if at is None else int(empty.columns[TOKENS][at].as_py()),
            end_with_eos=empty.ends_with_eos,
            has_labels="labels" in empty.columns,
            files=[file.name for file in files],
        )

    def to_dict(self) -> dict[str, object]:
        """What the manifest says of all documents."""
        return {
            "count": sum(shard.documents for shard in self.shards),
            "tokens": sum(shard.tokens for shard in self.shards),
            "opening": self.opening,
            "end_with_eos": self.end_with_eos,
            "has_labels": self.has_labels,
        }

    def plan(self, options: CorpusOptions) -> Plan:
        """The rows of all documents together.

        They are those that `pack_corpus` gives where everything stands in one partition.
        """
        nowhere = np.zeros(0, dtype=np.int64)
        of_this_kind = Documents(
            columns={},
            offsets=nowhere,
            lengths=nowhere,
            numbers=nowhere,
            prefix_at=None if self.opening is None else 0,
            ends_with_eos=self.end_with_eos,
        )
        with words_of_packing():
            shape = of_this_kind.terms(options.plan_options(shard_seed(options.seed, 0, 0)))
            lengths = np.concatenate([shard.lengths() for shard in self.shards])
            if options.overlong == "error" and lengths.max(initial=0) > shape.max_fragment:
                ids = np.concatenate([shard.ids() for shard in self.shards])
                require_fitting(lengths, shape.max_fragment, ids, self.files)
            return plan_documents(lengths, shape, self._supervised() if self.has_labels else None)

    def _supervised(self) -> Supervised:
        """A judge of fragments that reads the labels of one shard at a time."""
        edges = np.cumsum([0, *(shard.documents for shard in self.shards)])

        def supervised(fragments: Fragments) -> npt.NDArray[np.bool]:
            order = np.argsort(fragments.documents, kind="stable")
            cuts = np.searchsorted(fragments.documents[order], edges)
            taught = np.zeros(len(fragments), dtype=bool)
            for number, shard in enumerate(self.shards):
                which = order[cuts[number] : cuts[number + 1]]
                judge = supervised_by_labels(shard.labelled()) if len(which) else None
                if judge is not None:
                    taught[which] = judge(_from(fragments.take(which), int(edges[number])))
            return taught

        return supervised

    def ledger(self, plan: Plan) -> Ledger:
        """What became of every record: left out before there were documents, or by the plan."""
        before = sum((shard.ledger for shard in self.shards), Ledger())
        documents, tokens = before.documents, before.tokens
        dropped = Ledger(
            documents=Tally(input=documents.num_dropped, dropped=documents.dropped),
            tokens=TokenTally(input=tokens.num_dropped, dropped=tokens.dropped),
        )
        return (dropped + plan.ledger).check()


def _from(fragments: Fragments, first: int) -> Fragments:
    return Fragments(
        documents=fragments.documents - first, starts=fragments.starts, stops=fragments.stops
    )


def plan_name(options: CorpusOptions, named: str | None = None) -> str:
    """The name of a plan: as given, or from what it is.

    >>> plan_name(CorpusOptions(max_length=4096))
    'best_fit-4096'
    """
    if named is None:
        strategy = re.sub(r"[^A-Za-z0-9_]", "_", options.strategy)
        return f"{strategy}-{options.max_length}"
    if not isinstance(named, str) or not _NAME.fullmatch(named):
        raise InvalidOption(
            f"a plan cannot be named {named!r:.80}; take letters, digits, '_', '-' and '.'"
        )
    return named


def write_plan(
    out: AnyPath, name: str, index: DocumentIndex, options: CorpusOptions
) -> dict[str, Any]:
    """Plan, put the plan there whole; its entry in the manifest."""
    plan = index.plan(options)
    (out / PLANS).mkdir(exist_ok=True)
    file = f"{PLANS}/{name}.arrow"
    sha256, size = _save(plan, out / file)
    return {
        "name": name,
        "file": file,
        "sha256": sha256,
        "bytes": size,
        "options": options.row_options(),
        "rows": plan.num_rows,
        "tokens": int(plan.row_lengths.sum(dtype=np.int64)),
        "ledger": index.ledger(plan).to_dict(),
    }


def _save(plan: Plan, path: AnyPath) -> tuple[str | None, int]:
    """SHA-256 and size of the plan, which is there whole when this returns."""
    if isinstance(path, RemotePath):
        with path.written_whole() as local:
            return _save(plan, local)
    plan.save(path)
    return sha256_of(path), path.stat().st_size
