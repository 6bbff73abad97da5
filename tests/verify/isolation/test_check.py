"""The check itself: what it calls a leak, noise or neither, and what it refuses to judge."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from tests.verify.isolation.callables import Averager, RunningSSM
from tests.verify.isolation.models import boundaries, collate, model, rows, segment_batch

from quire.errors import InvalidBoundaries, InvalidOption, ModelError
from quire.verify import IsolationOptions, check_isolation

SEGMENTS = boundaries().segment_ids()


def kinds(report) -> set[str]:
    return {pair.kind for pair in report.pairs}


def test_any_callable_that_keeps_documents_apart_is_isolated():
    report = check_isolation(Averager(), segment_batch())
    assert (report.verdict, report.skipped, report.diagnosis) == ("isolated", {}, None)
    # Six documents, and one stretch of padding that is a source only.
    assert (report.num_documents, report.num_pairs) == (6, 6 * 5 + 6)


def test_a_difference_within_rounding_and_without_gradient_is_noise():
    report = check_isolation(Averager(leak=1e-6, detached=True), segment_batch())
    assert (report.verdict, report.isolated) == ("noise", True)
    assert kinds(report) == {"noise"}
    assert "kernel" in report.diagnosis.cause


def test_a_difference_within_rounding_is_a_leak_when_a_gradient_crosses():
    report = check_isolation(Averager(leak=1e-6), segment_batch())
    assert (report.verdict, report.isolated) == ("leak", False)
    worst = max(pair.difference for pair in report.pairs)
    assert 0 < worst < report.tolerance


def test_a_difference_beyond_rounding_is_a_leak_without_any_gradient():
    report = check_isolation(Averager(leak=0.1, detached=True), segment_batch())
    assert report.verdict == "leak"
    assert {pair.gradient for pair in report.pairs} == {0.0}


def test_a_difference_within_rounding_proves_nothing_without_gradients():
    noisy, options = Averager(leak=1e-6, detached=True), IsolationOptions(gradients=False)
    report = check_isolation(noisy, segment_batch(), options=options)
    assert (report.verdict, report.isolated) == ("unproven", False)
    assert list(report.skipped) == ["gradients"]


def test_equal_bits_are_isolated_even_without_gradients():
    bare = Averager()
    report = check_isolation(bare.forward, segment_batch())
    assert report.verdict == "isolated"
    assert "pass embedding=" in report.skipped["gradients"]


def test_gradients_of_a_function_are_taken_if_its_embedding_is_given():
    leaking = Averager(leak=1e-6)
    report = check_isolation(leaking.forward, segment_batch(), embedding=leaking.table)
    assert (report.verdict, report.skipped) == ("leak", {})


def test_a_leak_names_the_documents_and_the_difference():
    report = check_isolation(Averager(leak=0.1), segment_batch())
    sources = {str(pair.source) for pair in report.pairs}
    assert sources == {"row 0 document 1 (tokens 0..6)", "row 1 document 1 (tokens 0..8)"}
    # The leak reaches the other row, too: all documents but the source itself.
    assert len(report.pairs) == 2 * 5
    assert all(0 < pair.difference < 0.1 for pair in report.pairs)
    assert report.diagnosis.cause.startswith("unknown")


def test_a_state_space_model_that_reads_seq_idx_is_isolated():
    batch = collate(rows(), attention="segments")
    batch = {name: batch[name] for name in ("input_ids", "position_ids", "seq_idx")}
    assert check_isolation(RunningSSM(), batch).verdict == "isolated"


def test_a_state_space_model_without_seq_idx_leaks_and_the_remedy_is_seq_idx():
    batch = collate(rows(), attention=None)
    batch = {name: batch[name] for name in ("input_ids", "position_ids")}
    report = check_isolation(RunningSSM(), batch)
    assert report.verdict == "leak"
    assert report.diagnosis.confirmed
    assert (
        report.diagnosis.cause == "RunningSSM carries a state across documents and got no seq_idx"
    )
    assert "attention='segments'" in report.diagnosis.remedy


def test_a_state_space_model_that_ignores_seq_idx_is_refused():
    batch = collate(rows(), attention="segments")
    batch = {name: batch[name] for name in ("input_ids", "position_ids", "seq_idx")}
    report = check_isolation(RunningSSM(reads_seq_idx=False), batch)
    assert (report.verdict, report.diagnosis.confirmed) == ("leak", False)
    assert "ignore seq_idx" in report.diagnosis.cause


def test_numpy_callables_are_checked_without_gradients():
    table = np.random.default_rng(0).normal(size=(64, 4))

    def sums(input_ids, segment_ids):
        same = segment_ids[:, :, None] == segment_ids[:, None, :]
        return np.tril(same) @ table[input_ids]

    batch = {name: value.numpy() for name, value in segment_batch().items()}
    assert check_isolation(sums, batch).verdict == "isolated"
    batch_with_one_segment = {**batch, "segment_ids": np.ones_like(batch["segment_ids"])}
    report = check_isolation(sums, batch_with_one_segment, segment_ids=SEGMENTS)
    assert report.verdict == "leak"
    assert [found.form for found in report.disagreements] == ["segment_ids"]


def test_rows_are_collated_and_padding_is_not_a_document():
    report = check_isolation(model("llama"), rows())
    assert (report.verdict, report.num_documents) == ("isolated", 6)


@pytest.mark.parametrize("world_size", ["1", "2"])
def test_a_batch_of_several_processes_is_checked_whole(world_size, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", world_size)
    report = check_isolation(model("llama"), collate(rows()))
    assert (report.verdict, report.skipped) == ("isolated", {})


def test_contradictory_parts_of_a_batch_are_reported_even_if_nothing_leaks():
    batch = collate(rows(), attention="varlen") | {"use_cache": False}
    bounds = batch["cu_seq_lens_k"].clone()
    bounds[1] += 1
    report = check_isolation(model("llama"), {**batch, "cu_seq_lens_k": bounds})
    assert (report.verdict, report.isolated) == ("disagreement", False)
    assert [found.form for found in report.disagreements] == ["cu_seq_lens_k"]
    assert "starts at token" in report.diagnosis.cause


def test_dropout_is_off_during_the_check_and_on_again_after_it():
    dropping = Averager(dropout=0.5)
    dropping.table.eval()  # a mixed state comes back as it was
    assert check_isolation(dropping, segment_batch()).verdict == "isolated"
    assert (dropping.training, dropping.dropout.training, dropping.table.training) == (
        True,
        True,
        False,
    )


def test_a_report_survives_json():
    report = check_isolation(Averager(leak=0.1), segment_batch())
    fields = json.loads(report.to_json())
    assert (fields["verdict"], fields["isolated"]) == ("leak", False)
    assert fields["pairs"][0]["source"] == {"row": 0, "number": 1, "start": 0, "stop": 7}
    assert fields["pairs"][0]["difference"] == report.pairs[0].difference


def test_a_report_with_an_infinite_difference_is_still_json():
    def explodes(input_ids, segment_ids):
        logits = input_ids[..., None].double()
        changed = not torch.equal(input_ids[0, :7], segment_batch()["input_ids"][0, :7])
        return logits + (float("nan") if changed else 0.0)

    report = check_isolation(explodes, segment_batch())
    assert report.verdict == "leak"
    assert json.loads(report.to_json())["pairs"][0]["difference"] == "inf"


def test_documents_of_one_repeated_token_are_perturbed():
    batch = segment_batch(input_ids=torch.zeros(2, 19, dtype=torch.int64))
    assert check_isolation(Averager(leak=0.1), batch).verdict == "leak"


def test_kept_tokens_are_neither_changed_nor_used():
    seen = []

    def watch(input_ids, segment_ids):
        seen.append(input_ids)
        return input_ids[..., None].double()

    batch = segment_batch()
    keep = tuple(batch["input_ids"][0, :3].tolist())
    check_isolation(watch, batch, options=IsolationOptions(keep_token_ids=keep))
    kept = torch.isin(batch["input_ids"], torch.tensor(keep))
    assert kept.sum() >= 3
    same_shape = [ids for ids in seen if ids.shape == kept.shape]
    assert all(torch.equal(torch.isin(ids, torch.tensor(keep)), kept) for ids in same_shape)
    assert any(not torch.equal(ids, batch["input_ids"]) for ids in same_shape)


def test_a_document_that_cannot_be_changed_is_refused():
    batch = segment_batch()
    keep = tuple(batch["input_ids"][0, :7].tolist())
    with pytest.raises(InvalidOption, match=r"every token of row 0 document 1 .* leave one out"):
        check_isolation(Averager(), batch, options=IsolationOptions(keep_token_ids=keep))


@pytest.mark.parametrize(
    ("batch", "error", "message"),
    [
        ({"inputs_embeds": torch.zeros(1, 2, 3)}, InvalidOption, "inputs_embeds but no input_ids"),
        ({}, InvalidOption, "no keys but no input_ids"),
        ({"input_ids": torch.ones(2, 3).long()}, InvalidOption, "pass document_starts"),
        ({"input_ids": torch.ones(3).long()}, InvalidBoundaries, r"needs \[rows, tokens\]"),
        (
            {"input_ids": torch.ones(1, 3).long(), "position_ids": torch.arange(3)[None]},
            InvalidOption,
            "at most one in a row",
        ),
        (
            {"input_ids": torch.ones(1, 3).long(), "segment_ids": torch.tensor([[1, 2]])},
            InvalidBoundaries,
            r"segment_ids have shape \(1, 2\) but input_ids \(1, 3\)",
        ),
        (
            {"input_ids": torch.ones(1, 3).long(), "segment_ids": torch.tensor([[1, 2, 1]])},
            InvalidBoundaries,
            "segment 1 at token 2 is out of order",
        ),
    ],
)
def test_a_batch_that_cannot_be_checked_is_refused(batch, error, message):
    with pytest.raises(error, match=message):
        check_isolation(Averager(), batch)


@pytest.mark.parametrize(
    ("starts", "message"),
    [([[0, 3]], "for 1 row but the batch has 2"), ([[0, 19], [0]], "19"), ([[1], [0]], "row 0")],
)
def test_document_starts_that_do_not_fit_are_refused(starts, message):
    with pytest.raises(InvalidBoundaries, match=message):
        check_isolation(model("llama"), collate(rows()), document_starts=starts)


@pytest.mark.parametrize(
    ("callable_", "message"),
    [
        (lambda **batch: torch.rand(2, 19, 4), "two identical calls differ"),
        (lambda **batch: torch.full((2, 19, 4), float("nan")), "are not finite"),
        (lambda **batch: torch.zeros(2, 4), r"shape \(2, 4\) for input_ids of shape \(2, 19\)"),
        (lambda **batch: None, "returned a NoneType; the check needs logits"),
        (lambda **batch: "logits", "returned a str; the check needs logits"),
        (lambda input_ids: input_ids, "failed when called with input_ids, segment_ids: TypeError"),
    ],
)
def test_a_model_that_cannot_be_checked_is_refused(callable_, message):
    with pytest.raises(ModelError, match=message):
        check_isolation(callable_, segment_batch())
