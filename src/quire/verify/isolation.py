"""The proof that the documents of a packed batch do not see each other inside a model.

Five questions are asked of the very call that the user makes:

1. does the batch agree with itself about where documents start?
2. does changing one document change the logits of another, in any bit?
3. does any gradient go from one document's logits to another's embeddings?
4. are the logits of each document those that it has alone, up to rounding?
5. does a later token of a document notice an earlier one, so that a leak could have been seen?
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch

from quire.errors import InvalidOption, ModelError
from quire.verify.bfloat16 import require_bf16
from quire.verify.calls import Call, Model, make_call, without_labels
from quire.verify.causes import diagnose
from quire.verify.control import explain
from quire.verify.findings import Findings, find
from quire.verify.layout import Batch, Layout, as_numpy, find_layout
from quire.verify.model_config import attention_backend
from quire.verify.model_state import is_training, undisturbed
from quire.verify.options import IsolationOptions
from quire.verify.output_head import sampled_vocabulary
from quire.verify.report import Diagnosis, IsolationReport, Verdict
from quire.verify.rows import collate


def check_isolation(
    model: Model,
    batch_or_rows: Batch | Sequence[Mapping[str, object]],
    *,
    document_starts: Sequence[npt.ArrayLike] | None = None,
    segment_ids: npt.ArrayLike | None = None,
    embedding: torch.nn.Module | None = None,
    options: IsolationOptions | None = None,
) -> IsolationReport:
    """The report on `model(**batch)`: isolated or not, which documents, by how much, and why.

    The model is any callable that takes the batch as keywords and returns logits, or an object with
    `.logits`. Rows (`input_ids` with `document_starts`) go through `DataCollatorForCausalLM` first.
    Where a batch does not say where documents start, or says it wrongly, say it with
    `document_starts` or `segment_ids`. `embedding` is the module at whose output gradients are
    taken; on transformers models it is found.

    The model is examined in the mode that it is in, with dropout off: in training mode, what
    depends on the whole batch (BatchNorm, say) shows. A model whose tokens do not attend to
    earlier ones, as with a head of zeros, is `unproven` under any call. Of n documents, an isolated
    call costs one forward pass for each document alone, and 2 · log2(n) forward and backward passes
    of the batch; in training mode, 8 · log2(n) forward passes.
    """
    if not isinstance(batch_or_rows, Mapping):
        segment_ids = collate(batch_or_rows, "segments")["segment_ids"]
        batch_or_rows = collate(batch_or_rows, "transformers")
    batch = dict(batch_or_rows)
    layout = find_layout(batch, document_starts, segment_ids)
    _require_packing(layout)
    options = options or IsolationOptions()
    _require_changes(batch, layout, options.keep_token_ids)
    _refuse_what_would_crash(model, batch)
    require_bf16(model)
    batch = without_labels(model, batch)
    call = make_call(model, embedding)
    with undisturbed(model), sampled_vocabulary(call, batch):
        findings = find(call, batch, layout, options)
        diagnosis = _diagnosis(findings, call, batch, layout, options)
    return _report(findings, layout, diagnosis, training=is_training(model))


def _require_packing(layout: Layout) -> None:
    if not any(document.number > 1 for document in layout.documents):
        raise InvalidOption(
            f"the batch holds {len(layout.documents)} documents, at most one in a row, so there is "
            "nothing to isolate; pass a packed batch, or document_starts if its positions "
            "do not restart"
        )


def _require_changes(batch: Batch, layout: Layout, keep: tuple[int, ...]) -> None:
    """A document that stays as it is would pass for one that nobody notices."""
    kept = np.isin(as_numpy(batch["input_ids"]), keep)
    for document in layout.documents:
        if kept[document.row, document.start : document.stop].all():
            raise InvalidOption(
                f"keep_token_ids hold every token of {document}, so it cannot be changed and "
                "nothing can be seen; leave one out, or pass other documents"
            )


def _refuse_what_would_crash(model: Model, batch: Batch) -> None:
    mask = batch.get("attention_mask")
    dense = isinstance(mask, torch.Tensor) and mask.ndim == 4
    if dense and attention_backend(model) == "flex_attention":
        # torch does not raise here: it aborts the process.
        raise ModelError(
            "flex attention cannot take a 4-D mask tensor; collate with attention='flex' "
            "(a BlockMask) or 'transformers'"
        )


def _report(
    findings: Findings, layout: Layout, diagnosis: Diagnosis | None, *, training: bool
) -> IsolationReport:
    return IsolationReport(
        verdict=findings.verdict,
        num_documents=len(layout.documents),
        num_pairs=len(layout.documents) * (len(layout.documents + layout.padding) - 1),
        dtype=str(findings.dtype).removeprefix("torch."),
        tolerance=findings.tolerance,
        pairs=findings.pairs,
        altered=findings.altered,
        disagreements=findings.disagreements,
        skipped=findings.skipped,
        diagnosis=diagnosis,
        dependence=findings.dependence,
        training=training,
        num_logits=findings.num_logits,
    )


def _diagnosis(
    findings: Findings, call: Call, batch: Batch, layout: Layout, options: IsolationOptions
) -> Diagnosis | None:
    verdict = findings.verdict
    if verdict in ("leak", "altered"):
        return diagnose(call.model, batch, layout, _recheck(call, layout, options))
    if verdict == "disagreement":
        parts = "; ".join(f"{found.form}: {found.message}" for found in findings.disagreements)
        remedy = "let one collator make all parts of the batch, and slice none of them afterwards"
        return Diagnosis(cause=parts, remedy=remedy, confirmed=False)
    if verdict == "unproven" and findings.dependence != "shown":
        return explain(findings.dependence)
    if verdict in ("noise", "unproven"):
        return _noise(verdict)
    return None


def _noise(verdict: Verdict) -> Diagnosis:
    cause = "a kernel whose rounding depends on all tokens of the batch, such as grouped experts"
    remedy = "none is needed for training; for equal bits, experts_implementation='batched_mm'"
    if verdict == "unproven":
        remedy = "check again with sdpa or eager attention in float32, where gradients exist"
    return Diagnosis(cause=cause, remedy=remedy, confirmed=False)


def _recheck(call: Call, layout: Layout, options: IsolationOptions) -> Callable[[Batch], bool]:
    """Whether another batch is isolated, by the whole check: a remedy that moves the problem
    elsewhere, to another document or from a leak to an altered one, is none."""

    def cured(batch: Batch) -> bool:
        found = find(call, batch, layout, options, detailed=False)
        return found.verdict in ("isolated", "noise")

    return cured
