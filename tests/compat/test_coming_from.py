"""The tables of docs/guides/coming-from.md, row by row."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tests.commands import run

import quire
from quire.blocks import BlockOptions, block_tokenize_fn, pack_texts
from quire.collate import DataCollatorForCausalLM, get_pos_ids_for_packed_sequence
from quire.errors import InvalidOption, QuireError
from quire.stream import open_stream
from quire.vision import FusionDataset, PackedVLDataset, VisionConfig

BYTES = quire.ByteTokenizer()
TEXTS = {"text": [f"{n}: " + "word " * (n * 7 % 13) for n in range(40)]}


def blocks(texts: dict = TEXTS, **options: object) -> dict:
    return block_tokenize_fn(texts, BYTES, "text", **({"max_length": 64, "packed": True} | options))


class TestForgather:
    @pytest.mark.parametrize(
        ("path", "expected"),
        [
            ("forgather.ml.datasets:block_tokenize_fn", block_tokenize_fn),
            ("forgather.ml.datasets.block_tokenizer:block_tokenize_fn", block_tokenize_fn),
            ("forgather.ml.data_collator:DataCollatorForCausalLM", DataCollatorForCausalLM),
            (
                "forgather.ml.data_collator:get_pos_ids_for_packed_sequence",
                get_pos_ids_for_packed_sequence,
            ),
            ("forgather.ml.datasets.block_tokenizer:Document", quire.blocks.Document),
        ],
    )
    def test_module_paths_work_in_recipes(self, tmp_path, path, expected):
        (tmp_path / "recipe.yaml").write_text(
            f"[map_function]\n.define: &map_function !partial:{path}\n"
        )
        assert quire.load_recipe(tmp_path / "recipe.yaml")["map_function"].func is expected

    def test_the_dataset_command_is_inspect(self, tmp_path):
        rows = blocks()
        lines = [
            dict(zip(rows, values, strict=True)) for values in zip(*rows.values(), strict=True)
        ]
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        shown = run(
            "inspect", tmp_path / "rows.jsonl", "--tokenizer", "byte", "--tokenized", "-n", 5
        )
        assert shown.stdout.count("Documents: ") == 5, shown.stderr
        assert "------------- 0 Tokens: 64, Documents: " in shown.stdout

    def test_the_fallback_is_eos_then_bos_and_then_an_error(self):
        row = [{"input_ids": [1, 5, 2, 1, 6, 2]}]
        collate = DataCollatorForCausalLM(BYTES, packed_sequences=True)
        assert collate(row)["position_ids"].tolist() == [[0, 1, 2, 0, 1, 2]]
        without_eos = SimpleNamespace(pad_token_id=0, eos_token_id=None, bos_token_id=1)
        collate = DataCollatorForCausalLM(without_eos, packed_sequences=True)
        assert collate(row)["position_ids"].tolist() == [[0, 1, 2, 0, 1, 2]]
        neither = SimpleNamespace(pad_token_id=0, eos_token_id=None, bos_token_id=None)
        with pytest.raises(QuireError, match="document_starts"):
            DataCollatorForCausalLM(neither, packed_sequences=True)(row)

    def test_padding_that_is_eos_starts_no_document(self):
        aliased = SimpleNamespace(pad_token_id=2, eos_token_id=2, bos_token_id=None)
        collate = DataCollatorForCausalLM(aliased, packed_sequences=True)
        batch = collate([{"input_ids": [5, 2, 6, 7, 2]}, {"input_ids": [5, 2]}])
        assert batch["position_ids"].tolist()[1] == [0, 1, 0, 1, 2]
        assert batch["labels"].tolist()[1][2:] == [-100] * 3

    def test_a_continuation_has_a_start(self):
        assert blocks({"text": ["x" * 100]})["document_starts"] == [[0], [0]]

    def test_the_batch_has_a_fourth_key(self):
        batch = DataCollatorForCausalLM(BYTES)([{"input_ids": [1, 5], "document_starts": [0]}])
        assert set(batch) == {"input_ids", "labels", "position_ids", "use_cache"}
        assert batch["use_cache"] is False

    def test_sequence_ids_are_segment_ids(self):
        row = {"input_ids": [1, 5, 2, 1, 6], "document_starts": [0, 3]}
        batch = DataCollatorForCausalLM(BYTES, attention="segments")([row])
        assert batch["segment_ids"].tolist() == [[1, 1, 1, 2, 2]]

    @pytest.mark.parametrize("attention", ["sdpa", "eager", "flex"])
    def test_attention_masks_can_be_written_out(self, attention):
        row = {"input_ids": [1, 5, 2, 1, 6], "document_starts": [0, 3]}
        assert "attention_mask" in DataCollatorForCausalLM(BYTES, attention=attention)([row])

    def test_position_ids_of_tokens_take_a_token_or_starts(self):
        ids = torch.tensor([[5, 2, 6, 7]])
        assert get_pos_ids_for_packed_sequence(ids, 2).tolist() == [[0, 1, 0, 1]]
        starts = get_pos_ids_for_packed_sequence(ids, document_starts=[[0, 3]])
        assert starts.tolist() == [[0, 1, 2, 0]]

    @pytest.mark.filterwarnings("ignore:block_tokenize_fn dropped")
    def test_greedy_without_overflow_packs(self):
        rows = blocks(packing_strategy="greedy", overflow=False)
        assert max(len(starts) for starts in rows["document_starts"]) > 1

    def test_min_len_drops_rows_and_not_documents(self):
        rows = pack_texts(["a" * 6, "b", "c"], BYTES, BlockOptions(max_length=8, packed=True))
        assert rows.ledger.documents.num_dropped == 0
        short = BlockOptions(max_length=8, packed=True, min_len=4)
        dropped = pack_texts(["abcdef", "b"], BYTES, short).ledger.documents.dropped
        assert dropped == {"row_too_short": 1}

    def test_a_seed_left_out_is_42_and_none_is_fresh_entropy(self):
        shuffled = {"packing_strategy": "best_fit", "shuffle_output": True}
        assert blocks(**shuffled) == blocks(**shuffled, seed=42) != blocks(**shuffled, seed=0)
        drawn = [blocks(**shuffled, seed=None)["input_ids"] for _ in range(4)]
        assert any(one != drawn[0] for one in drawn)

    def test_a_typo_is_an_error(self, tmp_path):
        with pytest.raises(TypeError, match="max_lenght"):
            block_tokenize_fn(TEXTS, BYTES, "text", max_lenght=8)
        with pytest.raises(InvalidOption, match="did you mean 'max_length'"):
            quire.pack_dataset([{"text": "a"}], BYTES, max_lenght=8)

    def test_rows_of_pack_dataset_are_always_shuffled(self):
        records = [{"text": text} for text in TEXTS["text"]]
        first, again, other = (
            quire.pack_dataset(records, BYTES, max_length=64, seed=seed).to_pydict()
            for seed in (0, 0, 1)
        )
        assert first == again != other

    def test_empty_documents_are_counted(self):
        packed = pack_texts(["", "a"], BYTES, BlockOptions(add_bos=False, add_eos=False))
        assert packed.ledger.documents.dropped == {"empty": 1}


def config(**data: object) -> dict:
    source = {"backend": "local_text", "local_text": "words and more " * 40, "repeat": False}
    return {
        "data": {**source, "tokenizer": {"kind": "byte"}, **data},
        "train": {"seq_len": 16, "batch_size": 2, "grad_accum": 2},
    }


class TestChomp:
    @pytest.mark.parametrize("mode", ["sequential", "bin"])
    def test_the_batch_contract_is_kept(self, mode):
        with open_stream(config(packing_mode=mode)) as stream:
            batch = next(stream)
        for name in ("input_ids", "labels", "segment_ids"):
            assert getattr(batch, name).shape == (2, 2, 16)
            assert getattr(batch, name).dtype == np.int32
        assert batch.attention_mask.dtype == np.bool
        assert batch.segment_ids.max() == 1, "one document"

    @pytest.mark.parametrize(
        ("mode", "strategy"),
        [("sequential", "wrapped"), ("bin", "first_fit"), ("online", "online")],
    )
    def test_names_of_packers(self, mode, strategy):
        with open_stream(config(packing_mode=mode)) as stream:
            assert stream.options.strategy == strategy

    def test_names_of_options(self):
        given = config(packing_buffer_docs=7, packing_max_docs_per_bin=3, grain_prefetch=2)
        given["data"]["tokenizer"] = {"kind": "byte", "max_doc_tokens": 9}
        with open_stream(given) as stream:
            options = stream.options
        assert (options.buffer_size, options.max_documents_per_row) == (7, 3)
        assert (options.prefetch, options.truncate_to, options.max_length) == (2, 9, 16)

    def test_bos_is_off_in_a_config_and_as_the_tokenizer_does_elsewhere(self):
        with open_stream(config()) as stream:
            assert stream.options.add_bos is False
        with open_stream(tokenizer="byte", local_text="abc", max_length=4, batch_size=1) as stream:
            assert next(stream).input_ids[0, 0, 0] == BYTES.bos_token_id

    def test_segment_masking_changes_no_batch(self):
        batches = []
        for masking in (True, False):
            with open_stream(config() | {"model": {"segment_masking": masking}}) as stream:
                assert stream.config.model.segment_masking is masking
                batches.append(next(stream))
        assert (batches[0].segment_ids == batches[1].segment_ids).all()
        assert (batches[0].labels == batches[1].labels).all()

    def test_position_ids_are_there_if_asked_for(self):
        with open_stream(config(emit_position_ids=True)) as stream:
            assert next(stream).position_ids[0, 0].tolist() == list(range(16))

    def test_states_have_both_names_and_are_json(self):
        with open_stream(config()) as stream:
            next(stream)
            state = json.loads(json.dumps(stream.get_state()))
            assert state == json.loads(json.dumps(stream.state_dict()))
            expected = next(stream)
        with open_stream(config()) as stream:
            stream.set_state(state)
            assert (next(stream).input_ids == expected.input_ids).all()

    def test_an_unknown_name_is_an_error(self):
        with pytest.raises(QuireError, match="packing_mode"):
            open_stream(config(packing_mod="bin"))

    def test_the_model_takes_over_what_the_tokenizer_knows(self):
        with open_stream(config()) as stream:
            model = stream.config.model
        assert (model.vocab_size, model.pad_token_id, model.eos_token_id) == (259, 0, 2)


SAMPLES = [{"length": n, "channel": f"{n}"} for n in (30, 30, 20, 60, 50, 10)]


class TestSwift:
    def test_options_have_their_names_under_training(self):
        names = {
            "packing": True,
            "packing_length": 80,
            "packing_buffer": 4,
            "packing_min_fill_ratio": 0.7,
            "packing_drop_last": False,
            "packing_allow_single_long": False,
        }
        options = quire.config.load_options(VisionConfig, {"training": names}).training
        assert {name: getattr(options, name) for name in names} == names

    def test_the_template_is_prepared_and_gives_the_default_length(self):
        template = SimpleNamespace(max_length=80, packing=False, padding_free=False)
        packed = PackedVLDataset(SAMPLES, template=template)
        assert packed.packing_length == 80
        assert template.packing and template.padding_free

    def test_fields_of_samples_are_preserved(self):
        packed = PackedVLDataset(SAMPLES, packing_length=80, packing_drop_last=False)
        assert {sample["channel"] for pack in packed for sample in pack} == {
            sample["channel"] for sample in SAMPLES
        }

    def test_an_epoch_reaches_the_fused_dataset_first(self):
        fused = FusionDataset({"a": SAMPLES, "b": SAMPLES}, {"a": 1.0, "b": 0.5})
        packed = PackedVLDataset(fused, packing_length=80, packing_drop_last=False)
        before = list(packed)
        packed.set_epoch(1)
        assert fused.epoch == 1
        assert list(packed) != before

    def test_a_sample_as_long_as_a_pack_is_too_long(self, caplog):
        for allowed, packs in ((True, [[80]]), (False, [])):
            packed = PackedVLDataset(
                [{"length": 80}], packing_length=80, packing_allow_single_long=allowed
            )
            assert [[sample["length"] for sample in pack] for pack in packed] == packs
        assert "skipped sample 0" in caplog.text

    def test_only_aggregate_figures_are_kept(self):
        from quire.vision import aggregate_metrics

        metrics = {"loss": 1.0, "token_acc": 0.5, "loss_charts": 2.0}
        assert aggregate_metrics(metrics, ["charts"]) == {"loss": 1.0, "token_acc": 0.5}
