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
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch

from quire.errors import InvalidOption, ModelError
from quire.verify.agreement import disagreements
from quire.verify.bfloat16 import require_bf16
from quire.verify.calls import Model, evaluating, make_call
from quire.verify.causes import attention_backend, diagnose
from quire.verify.control import (
    DEAF_GRADIENTS,
    dependence,
    explain,
    make_control,
    without_witness,
)
from quire.verify.examination import Examination, Gradients, examine
from quire.verify.layout import Batch, Layout, as_numpy, find_layout
from quire.verify.options import IsolationOptions
from quire.verify.report import (
    Altered,
    Dependence,
    Diagnosis,
    Disagreement,
    IsolationReport,
    Pair,
    Verdict,
)
from quire.verify.rows import collate

Found = TypeVar("Found")


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
    taken; on transformers models it is found. Costs two forward passes and one backward pass for
    each document, and as a rule one more of each for the control: a model in which no token notices
    an earlier one, as with a head of zeros, is `unproven` under any call.
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
    with evaluating(model):
        call = make_call(model, embedding)
        return _report(examine(call, batch, layout, options))


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


def _report(examination: Examination) -> IsolationReport:
    layout, skipped = examination.layout, dict[str, str]()
    pairs, noticed = _compare(examination, skipped)
    altered = _or_skip("alone", skipped, lambda: examination.altered(layout.documents)) or []
    contradictions = disagreements(examination.batch, layout)
    verdict = _verdict(pairs, noticed, altered, contradictions)
    return IsolationReport(
        verdict=verdict,
        num_documents=len(layout.documents),
        num_pairs=len(layout.documents) * (len(layout.documents + layout.padding) - 1),
        dtype=str(examination.base.dtype).removeprefix("torch."),
        tolerance=examination.tolerance,
        pairs=tuple(pairs),
        altered=tuple(altered),
        disagreements=contradictions,
        skipped=skipped,
        diagnosis=_diagnosis(verdict, examination, noticed, pairs, altered, contradictions),
        dependence=noticed,
    )


def _compare(
    examination: Examination, skipped: dict[str, str]
) -> tuple[Sequence[Pair], Dependence]:
    """The pairs that are not independent, and whether a document notices its own past."""
    control = make_control(examination)
    # What compares bits comes first: gradients and other shapes make torch.compile build kernels
    # anew, and those round otherwise.
    differences = examination.differences(examination.layout.documents + examination.layout.padding)
    moved = control.difference()
    gradients = _gradients(examination, skipped)
    pairs = examination.pairs(differences, gradients)
    slope = control.gradient() if gradients and control.halves else None
    if slope == 0.0:
        skipped["gradients"] = DEAF_GRADIENTS
        pairs = without_witness(pairs)
    return pairs, dependence(control, moved, slope)


def _gradients(examination: Examination, skipped: dict[str, str]) -> Gradients:
    if not examination.options.gradients:
        skipped["gradients"] = "not asked for (options.gradients=False)"
        return {}
    return _or_skip("gradients", skipped, examination.gradients) or {}


def _or_skip(name: str, skipped: dict[str, str], check: Callable[[], Found]) -> Found | None:
    try:
        return check()
    except ModelError as error:
        skipped[name] = str(error)
        return None


def _verdict(
    pairs: Sequence[Pair],
    noticed: Dependence,
    altered: Sequence[Altered],
    contradictions: Sequence[Disagreement],
) -> Verdict:
    kinds = {pair.kind for pair in pairs}
    if "leak" in kinds:
        return "leak"
    if noticed != "shown":  # before "altered", which says that no document sees another
        return "unproven"
    if altered:
        return "altered"
    if contradictions:
        return "disagreement"
    if "unproven" in kinds:
        return "unproven"
    return "noise" if kinds else "isolated"


def _diagnosis(
    verdict: Verdict,
    examination: Examination,
    noticed: Dependence,
    pairs: Sequence[Pair],
    altered: Sequence[Altered],
    contradictions: Sequence[Disagreement],
) -> Diagnosis | None:
    if verdict in ("leak", "altered"):
        model, batch, layout = examination.call.model, examination.batch, examination.layout
        return diagnose(model, batch, layout, _recheck(examination, pairs, altered))
    if verdict == "disagreement":
        parts = "; ".join(f"{found.form}: {found.message}" for found in contradictions)
        remedy = "let one collator make all parts of the batch, and slice none of them afterwards"
        return Diagnosis(cause=parts, remedy=remedy, confirmed=False)
    if verdict == "unproven" and noticed != "shown":
        return explain(noticed)
    if verdict in ("noise", "unproven"):
        return _noise(verdict)
    return None


def _noise(verdict: Verdict) -> Diagnosis:
    cause = "a kernel whose rounding depends on all tokens of the batch, such as grouped experts"
    remedy = "none is needed for training; for equal bits, experts_implementation='batched_mm'"
    if verdict == "unproven":
        remedy = "check again with sdpa or eager attention in float32, where gradients exist"
    return Diagnosis(cause=cause, remedy=remedy, confirmed=False)


def _recheck(
    examination: Examination, pairs: Sequence[Pair], altered: Sequence[Altered]
) -> Callable[[Batch], bool]:
    """Whether another batch cures what was found: asked of the worst finding of each kind."""
    leaks = sorted((pair for pair in pairs if pair.kind == "leak"), key=lambda p: -p.difference)
    worst = sorted(altered, key=lambda found: -found.difference)[:1]

    def cured(batch: Batch) -> bool:
        again = examine(examination.call, batch, examination.layout, examination.options)
        differences = again.differences([pair.source for pair in leaks[:1]])
        found = again.pairs(differences, _gradients(again, {}))
        if any(pair.kind == "leak" for pair in found):
            return False
        return not again.altered([found.document for found in worst])

    return cured
