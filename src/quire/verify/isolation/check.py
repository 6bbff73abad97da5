"""`check_isolation`: whether the documents of a packed batch see each other inside a model.

Five questions are asked about the exact call that the user makes:

1. does the batch agree with itself about where documents start?
2. does changing one document change the logits of another, in any bit?
3. does any gradient go from one document's logits to another's embeddings?
4. does each document have the logits that it has alone, up to rounding?
5. does a later token of a document depend on an earlier one, so that a leak could have been seen?
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch

from quire.collate import DataCollatorForCausalLM
from quire.errors import InvalidOption, ModelError
from quire.masks.dense import Windows
from quire.printable import counted
from quire.verify.isolation.bfloat16 import require_bf16
from quire.verify.isolation.consistency import disagreements
from quire.verify.isolation.diagnosis import diagnose, explain
from quire.verify.isolation.documents import Batch, BatchDocuments, as_numpy, find_documents
from quire.verify.isolation.effects import Effects, Experiment, without_gradients
from quire.verify.isolation.model import (
    Model,
    attention_backend,
    batch_in_float32,
    in_float32,
    is_half,
    is_training,
    restored,
)
from quire.verify.isolation.model_call import ModelCall, without_labels
from quire.verify.isolation.report import (
    Altered,
    Dependence,
    Diagnosis,
    Disagreement,
    IsolationOptions,
    IsolationReport,
    Kind,
    Pair,
    Verdict,
)

NO_GRADIENT = (
    "no gradient goes from a later token to an earlier one of its own document, so the lack of "
    "gradients between documents proves nothing"
)
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
    `.logits`. Rows (`input_ids` with `document_starts`) are collated by `DataCollatorForCausalLM`
    first. If a batch does not say where documents start, or says it wrongly, pass `document_starts`
    or `segment_ids`. `embedding` is the module at whose output gradients are taken; in transformers
    models it is found.

    The model is checked in its current mode, with dropout off: in training mode, whatever depends
    on the whole batch (BatchNorm, for example) shows up. A model whose tokens do not attend to
    earlier ones, as with a head of zeros, is `unproven` under any call. For n documents, an
    isolated call costs one forward pass for each document alone, and 2 · log2(n) forward and
    backward passes of the batch; in training mode, 8 · log2(n) forward passes.
    """
    if not isinstance(batch_or_rows, Mapping):
        batch_or_rows, segment_ids = collate(batch_or_rows, "transformers")
    batch = dict(batch_or_rows)
    documents = find_documents(batch, document_starts, segment_ids)
    options = options or IsolationOptions()
    _require_packing(documents)
    _require_changes(batch, documents, options.keep_token_ids)
    _refuse_dense_mask_for_flex(model, batch)
    require_bf16(model)
    batch = without_labels(model, batch)
    call = ModelCall(model, embedding)
    with restored(model), call.sampled_vocabulary(batch):
        experiment = Experiment(call, batch, documents, options)
        report = _check(experiment)
        return replace(report, diagnosis=_diagnose(report, experiment))


class _NoSpecialTokens:
    """A tokenizer without special tokens: rows bring their boundaries, and padding is 0."""

    pad_token_id: int | None = None
    eos_token_id: int | None = None
    bos_token_id: int | None = None


def collate(
    rows: Sequence[Mapping[str, object]],
    attention: str | None,
    windows: Windows = None,
    mask_dtype: str = "float32",
) -> tuple[Batch, torch.Tensor]:
    """The batch that `DataCollatorForCausalLM` makes of these rows, and its segment ids."""
    tokenizer = _NoSpecialTokens()
    segments = DataCollatorForCausalLM(tokenizer, attention="segments")(rows)["segment_ids"]
    collator = DataCollatorForCausalLM(
        tokenizer, attention=attention, windows=windows, mask_dtype=mask_dtype
    )
    return dict(collator(rows)), torch.as_tensor(segments)


def random_row(
    lengths: npt.NDArray[np.int64], num_ids: int, generator: np.random.Generator
) -> dict[str, object]:
    """A row of random tokens, in documents of these lengths."""
    tokens = generator.integers(0, num_ids, lengths.sum())
    return {"input_ids": tokens, "document_starts": np.cumsum(lengths) - lengths}


def _require_packing(documents: BatchDocuments) -> None:
    if not any(document.number > 1 for document in documents.documents):
        raise InvalidOption(
            f"the batch holds {counted(len(documents.documents), 'document')}, at most one in a "
            "row, so there is nothing to isolate; pass a packed batch, or document_starts if its "
            "positions do not restart"
        )


def _require_changes(batch: Batch, documents: BatchDocuments, keep: tuple[int, ...]) -> None:
    """A document that cannot be changed would pass for one without any effect."""
    kept = np.isin(as_numpy(batch["input_ids"]), keep)
    for document in documents.documents:
        if kept[document.row, document.start : document.stop].all():
            raise InvalidOption(
                f"keep_token_ids hold every token of {document}, so it cannot be changed and "
                "no effect can be seen; leave one out, or pass other documents"
            )


def _refuse_dense_mask_for_flex(model: Model, batch: Batch) -> None:
    mask = batch.get("attention_mask")
    is_dense = isinstance(mask, torch.Tensor) and mask.ndim == 4
    if is_dense and attention_backend(model) == "flex_attention":
        # torch does not raise here: it aborts the process.
        raise ModelError(
            "flex attention cannot take a 4-D mask tensor; collate with attention='flex' "
            "(a BlockMask) or 'transformers'"
        )


def _check(experiment: Experiment, *, detailed: bool = True) -> IsolationReport:
    """The report on a call, without a diagnosis; a leak is traced to documents if `detailed`."""
    skipped: dict[str, str] = {}
    pairs, dependence = _compare(experiment, skipped, detailed=detailed)
    precise = _or_skip("float32", skipped, lambda: _in_high_precision(experiment, pairs, skipped))
    if precise is None:  # 16 bits that cannot be widened
        precise = without_gradients(pairs), _altered(experiment, skipped)
    pairs, altered = precise
    found = disagreements(experiment.batch, experiment.documents)
    documents, padding = experiment.documents.documents, experiment.documents.padding
    return IsolationReport(
        verdict=_verdict({pair.kind for pair in pairs}, dependence, altered, found),
        num_documents=len(documents),
        num_pairs=len(documents) * (len(documents + padding) - 1),
        dtype=str(experiment.base.dtype).removeprefix("torch."),
        tolerance=experiment.tolerance,
        pairs=tuple(pairs),
        altered=tuple(altered),
        disagreements=found,
        skipped=skipped,
        diagnosis=None,
        dependence=dependence,
        training=is_training(experiment.call.model),
        num_logits=experiment.base.shape[2:].numel(),
    )


def _verdict(
    kinds: Collection[Kind],
    dependence: Dependence,
    altered: Sequence[Altered],
    found: Sequence[Disagreement],
) -> Verdict:
    """The worst of what was found."""
    if "leak" in kinds:
        return "leak"
    if dependence != "shown":  # before "altered", which says that no document sees another
        return "unproven"
    if altered:
        return "altered"
    if found:
        return "disagreement"
    if "unproven" in kinds:
        return "unproven"
    return "noise" if kinds else "isolated"


def _compare(
    experiment: Experiment, skipped: dict[str, str], *, detailed: bool
) -> tuple[list[Pair], Dependence]:
    """The pairs that are not independent, and whether documents depend on their own past."""
    # Bits are compared first: gradients and other shapes make torch.compile build new kernels,
    # which round differently.
    differences = experiment.differences(detailed=detailed)
    own_difference, own_gradient = experiment.own_difference(isolated=not differences), None
    gradients: Effects | None = None
    if experiment.options.gradients:
        gradients = _or_skip("gradients", skipped, lambda: experiment.gradients(detailed=detailed))
    else:
        skipped["gradients"] = "switched off (options.gradients=False)"
    pairs = experiment.pairs(differences, gradients)
    if gradients is not None:
        own_gradient = experiment.own_gradient()
    if own_gradient == 0.0:
        skipped["gradients"] = NO_GRADIENT
        pairs = without_gradients(pairs)
    return pairs, experiment.dependence(own_difference, own_gradient)


def _in_high_precision(
    experiment: Experiment, pairs: Sequence[Pair], skipped: dict[str, str]
) -> tuple[list[Pair], list[Altered]]:
    """The pairs and the altered documents, in float32 for a 16-bit model.

    Rounding shrinks with higher precision, and a leak does not.
    """
    model = experiment.call.model
    if not is_half(model, experiment.base):
        return list(pairs), _altered(experiment, skipped)
    with in_float32(model):
        precise = experiment.repeated(batch_in_float32(experiment.batch))
        if any(pair.kind == "noise" for pair in pairs):
            pairs = _judged(pairs, precise)
        return list(pairs), _altered(precise, skipped)


def _judged(pairs: Sequence[Pair], precise: Experiment) -> list[Pair]:
    """The pairs with their differences in float32, and leaks that only float32 shows."""
    differences = precise.differences()
    found = {(pair.source, pair.target): pair for pair in pairs}
    for key in sorted({*found, *differences}):
        difference, pair = differences.get(key, 0.0), found.get(key)
        is_leak = difference > precise.tolerance
        if pair is None and is_leak:
            pair = Pair(source=key[0], target=key[1], difference=0.0, gradient=0.0, kind="noise")
        if pair is not None and pair.kind == "noise":
            kind: Kind = "leak" if is_leak else "noise"
            found[key] = replace(pair, kind=kind, float32_difference=difference)
    return [found[key] for key in sorted(found)]


def _altered(experiment: Experiment, skipped: dict[str, str]) -> list[Altered]:
    """Documents with other logits alone, without what training mode does to a batch."""
    model = experiment.call.model
    if not (isinstance(model, torch.nn.Module) and is_training(model)):
        return _or_skip("alone", skipped, experiment.altered) or []
    with restored(model):
        model.eval()
        experiment = experiment.repeated(experiment.batch)
        return _or_skip("alone", skipped, experiment.altered) or []


def _or_skip(name: str, skipped: dict[str, str], check: Callable[[], Found]) -> Found | None:
    try:
        return check()
    except ModelError as error:
        skipped[name] = str(error)
        return None


def _diagnose(report: IsolationReport, experiment: Experiment) -> Diagnosis | None:
    def is_isolated(batch: Batch) -> bool:
        # By the whole check: a change that moves the problem to another document, or turns a leak
        # into an altered document, is not a remedy.
        return _check(experiment.repeated(batch), detailed=False).isolated

    if report.verdict in ("leak", "altered"):
        call, documents = experiment.call, experiment.documents
        return diagnose(call.model, experiment.batch, documents, is_isolated)
    return explain(report)
