"""Documents in the files of another system, as plans see them: their lengths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from quire.corpus.job import shard_seed
from quire.corpus.options import CorpusOptions
from quire.errors import OversizedDocument
from quire.formats.token_corpus import TokenCorpus
from quire.ledger import Ledger
from quire.options.names import option, setting
from quire.packed.in_place import open_recorded
from quire.plan import Plan, plan_documents, plan_options
from quire.storage import AnyPath


@dataclass(frozen=True, kw_only=True, slots=True)
class CorpusIndex:
    """All documents of an output that plans over files of another system."""

    corpus: TokenCorpus

    @classmethod
    def of_manifest(cls, out: AnyPath, manifest: Mapping[str, Any]) -> CorpusIndex:
        """The index of an output that this manifest describes."""
        return cls(corpus=open_recorded(out, manifest))

    def plan(self, options: CorpusOptions) -> Plan:
        """The rows of all documents together.

        They are the rows of `pack_corpus` with a single partition.
        """
        complete = plan_options(options, seed=shard_seed(options.seed, 0, 0))
        lengths = self.corpus.lengths()
        if options.overlong == "error" and int(lengths.max(initial=0)) > complete.max_fragment:
            document = int(np.argmax(lengths > complete.max_fragment))
            raise OversizedDocument(
                f"document {document} of {self.corpus.files[0].path} has {lengths[document]} "
                f"tokens but a row holds {complete.max_fragment}; split it "
                f"({setting('overlong', 'split')}) or raise {option('max_length')}"
            )
        return plan_documents(lengths, complete)

    def ledger(self, plan: Plan) -> Ledger:
        """What became of every token: in no document, or counted by the plan."""
        return (self.corpus.ledger + plan.ledger).check()
