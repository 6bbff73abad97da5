"""Every Python snippet of seeds 000 and 001, under quire's import names.

Most run as they stand. Those that are no Python, or only an outline, are shown to hold in quire's
own terms; the last test sees that none is forgotten.
"""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset
from tests.compat.recipes.seed_fences import fences
from tests.tokenizer_files import folder_of
from transformers import Qwen3Config, Qwen3ForCausalLM

import quire
from quire.blocks import Bin, Document
from quire.collate import DataCollatorForCausalLM, get_pos_ids_for_packed_sequence

pytestmark = pytest.mark.filterwarnings("ignore:block_tokenize_fn dropped")
NAMES = {
    "forgather.ml.datasets.block_tokenizer": "quire.blocks",
    "forgather.ml.datasets": "quire.blocks",
    "forgather.ml.data_collator": "quire.collate",
}


def snippet(seed: str, number: int) -> str:
    """A fence with quire's import names in the place of Forgather's."""
    text = fences(seed, "python")[number]
    for theirs, ours in NAMES.items():
        text = text.replace(theirs, ours)
    return text


def run(text: str, **names) -> SimpleNamespace:
    exec(compile(text, "snippet", "exec"), names)  # noqa: S102 - the documents' own code
    return SimpleNamespace(**{k: v for k, v in names.items() if not k.startswith("__")})


@pytest.fixture
def model():
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=1_792,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
    )
    return Qwen3ForCausalLM(config).eval()


@pytest.fixture
def here(tmp_path, monkeypatch, texts):
    """A working directory in which the names of the snippets stand for local files."""
    (tmp_path / "qwen3-1.7b-base").symlink_to(folder_of("small-qwen3"))
    (tmp_path / "your_model").symlink_to(folder_of("small-gpt2"))
    (tmp_path / "your_dataset").mkdir()
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (tmp_path / "your_dataset" / "train.jsonl").write_text(lines)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    return tmp_path


class Marked:
    """Two specials, so that rows look as the snippets draw them."""

    bos_token_id, eos_token_id, pad_token_id = 1, 2, 0


# Seed 000


def test_000_0_documents_are_between_bos_and_eos():
    names = {"BOS": 1, "EOS": 2, "doc1_tok1": 100, "doc1_tok2": 101}
    names |= {"doc2_tok1": 102, "doc2_tok2": 103}
    drawn = eval(snippet("000", 0).split("\n", 1)[1], names)  # noqa: S307
    rows = quire.block_tokenize_fn({"text": ["ab", "cd"]}, "byte", "text", packed=True)
    assert [*rows["input_ids"][0], ...] == drawn


def test_000_1_a_row_is_tokens_and_document_starts():
    row = eval(snippet("000", 1), {f"tok{n}": n for n in range(1, 9)})  # noqa: S307
    batch = DataCollatorForCausalLM(Marked(), return_tensors="np")([row])
    assert batch["position_ids"].tolist() == [[0, 1, 2, 3, 0, 1, 2, 3]]


def test_000_2_and_3_the_basic_example_and_training(here, model, capsys):
    done = run(snippet("000", 2))
    assert done.tokenizer.bos_token_id is None
    assert len(done.result["document_starts"][0]) == 3
    assert str(done.result["document_starts"]) in capsys.readouterr().out
    dataset = Dataset.from_dict(done.result)
    trained = run(snippet("000", 3), dataset=dataset, tokenizer=done.tokenizer, model=model)
    assert trained.batch["position_ids"].tolist()[0].count(0) == 3
    assert trained.outputs.loss.isfinite()


@pytest.mark.filterwarnings("ignore:no row of the batch has document_starts")
def test_000_4_packed_sequences_are_found_enabled_or_disabled():
    text = snippet("000", 4)
    plain, starts = [{"input_ids": [5, 2, 6, 2]}], [0, 2]
    found = []
    for part in text.split("collator = ")[1:]:
        collator = run(
            f"collator = {part}",
            DataCollatorForCausalLM=DataCollatorForCausalLM,
            tokenizer=Marked(),
        ).collator
        packed = [{**plain[0], "document_starts": starts}]
        found.append(["position_ids" in collator(rows) for rows in (plain, packed)])
    assert found == [[False, True], [True, True], [False, False]]


def test_000_5_a_bin_knows_its_documents():
    text = snippet("000", 5)
    with pytest.raises(SyntaxError):
        compile(text, "snippet", "exec")
    lengths = [int(n) for n in re.findall(r"tokens_added=(\d+)", text)]
    made = Bin(100)
    for number, length in enumerate(lengths):
        made.add_document(Document(input_ids=[7] * length, length=length, original_index=number))
    assert made.documents == list(enumerate(lengths))
    assert f"document_starts = {made.get_document_starts()}" in text


def test_000_6_positions_restart_at_every_document():
    text = snippet("000", 6)
    with pytest.raises(SyntaxError):
        compile(text, "snippet", "exec")
    assert "document_starts = [0, 50, 80]" in text
    positions = get_pos_ids_for_packed_sequence(
        torch.zeros(1, 100, dtype=torch.long), document_starts=[[0, 50, 80]]
    )
    assert positions.tolist()[0] == [*range(50), *range(30), *range(20)]


def test_000_7_the_model_s_own_rotation_is_not_quire_s():
    with pytest.raises(NameError, match="apply_rope"):
        run(snippet("000", 7))


def test_000_8_starts_are_preferred_and_tokens_are_the_fallback():
    ids = torch.tensor([[5, 2, 6, 2]])
    ways = {
        "generate_from_boundaries": lambda x, starts: get_pos_ids_for_packed_sequence(
            x, document_starts=starts
        ),
        "generate_from_tokens": get_pos_ids_for_packed_sequence,
        "input_ids": ids,
        "document_starts": [[0, 3]],
        "eos_token_id": 2,
    }
    by_starts = run(snippet("000", 8), features={"document_starts"}, **ways)
    by_tokens = run(snippet("000", 8), features=set(), **ways)
    assert by_starts.position_ids.tolist() == [[0, 1, 2, 0]]
    assert by_tokens.position_ids.tolist() == [[0, 1, 0, 1]]


def test_000_9_positions_restart_without_starts():
    made = run(
        snippet("000", 9), DataCollatorForCausalLM=DataCollatorForCausalLM, tokenizer=Marked()
    )
    batch = made.collator([{"input_ids": [5, 2, 6, 2]}])
    assert batch["position_ids"].tolist() == [[0, 1, 0, 1]]


def test_000_10_an_old_dataset_is_packed_again(texts):
    text = snippet("000", 10).replace("(...)", "(features, 'byte', 'text', packed=True)")
    text = text.replace("batched=True", "batched=True, remove_columns=['text']")
    dataset = Dataset.from_dict({"text": texts})
    done = run(text, dataset=dataset, block_tokenize_fn=quire.block_tokenize_fn)
    assert done.dataset.column_names == ["input_ids", "document_starts"]


# Seed 001


def bound(**options):
    return functools.partial(
        quire.block_tokenize_fn, tokenizer="byte", feature="text", packed=True, **options
    )


def test_001_0_large_map_batches(texts):
    dataset = Dataset.from_dict({"text": texts})
    done = run(snippet("001", 0), dataset=dataset, block_tokenize_fn=bound(max_length=512))
    assert done.dataset.to_dict() == bound(max_length=512)({"text": texts})


@pytest.mark.slow
def test_001_1_the_full_pipeline(here, texts):
    done = run(snippet("001", 1))
    rows = done.packed_dataset["train"]
    assert rows.column_names == ["input_ids", "document_starts"]
    batch = done.data_collator([rows[0], rows[1]])
    assert batch["position_ids"].shape == batch["input_ids"].shape
    assert done.dataloader.collate_fn is done.data_collator


def test_001_2_small_map_batches_leave_emptier_rows(texts):
    dataset = Dataset.from_dict({"text": texts})
    good, bad = snippet("001", 2).strip().split("\n")
    function = bound(max_length=2048, packing_strategy="best_fit")
    sizes = [
        run(
            "rows = " + line.replace("batched=True", "batched=True, remove_columns=['text']"),
            dataset=dataset,
            fn=function,
        ).rows.num_rows
        for line in (good, bad)
    ]
    assert sizes[0] < sizes[1]


def test_001_3_utilisation_is_what_the_snippet_prints(texts, capsys):
    rows = bound(max_length=2048, packing_strategy="best_fit")({"text": texts})
    run(snippet("001", 3), dataset=rows, max_length=2048)
    tokens = sum(len(row) for row in rows["input_ids"])
    expected = 100 * tokens / (2048 * len(rows["input_ids"]))
    assert capsys.readouterr().out == f"Utilization: {expected:.1f}%\n"
    assert expected > 90


def test_001_4_a_custom_packer_has_the_parts_that_it_needs():
    imports, own = snippet("001", 4).split("# Create")
    with pytest.raises(SyntaxError):
        compile(own, "snippet", "exec")
    parts = run(imports)
    rows, starts = parts.pack_sequences_optimized(
        [parts.Document(input_ids=[1, 2, 3], length=3, original_index=0)],
        max_length=8,
        min_len=1,
        stride=0,
        overflow=True,
    )
    assert (rows, starts) == ([[1, 2, 3]], [[0]])
    assert parts.Bin(8).remaining() == 8


def test_001_5_positions_in_a_custom_collator():
    collator = SimpleNamespace(packed_sequences=True, tokenizer=Marked())
    done = run(snippet("001", 5), self=collator, input_ids=torch.tensor([[5, 2, 6, 7]]))
    assert done.position_ids.tolist() == [[0, 1, 0, 1]]


def test_no_snippet_is_forgotten():
    source = Path(__file__).read_text(encoding="utf-8")
    asked = set(re.findall(r'snippet\("(\d+)", (\d+)\)', source))
    there = {(seed, str(n)) for seed in ("000", "001") for n in range(len(fences(seed, "python")))}
    assert asked == there
