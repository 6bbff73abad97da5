"""Every YAML snippet of seeds 000 and 001, as it stands there, does its work."""

from __future__ import annotations

import re

import pytest
import yaml
from tests.documents.real_tokenizers import folder_of
from tests.recipes.seed_fences import REASON, SEEDS, as_parameters, fences

from quire import block_tokenize_fn, load_recipe
from quire.collate import DataCollatorForCausalLM

pytestmark = pytest.mark.filterwarnings("ignore:block_tokenize_fn dropped")
SNIPPETS = as_parameters("yaml")
WHOLE = [
    one for one in SNIPPETS if one.marks or re.search(r"-- extends|\[map_function\]", one.values[0])
]
OPTION = re.compile(r"^ {4}(\w+): ([^*!{#\n]+?)\s*(?:#.*)?$", re.MULTILINE)


def is_whole(snippet: str) -> bool:
    """Whether the snippet is a recipe with a parent, and not some options alone."""
    return any(snippet == one.values[0] for one in WHOLE)


def said_options(snippet: str) -> dict:
    """What the snippet tells the map function, read without quire."""
    part = re.split(r"\[train_dataset\]|-- block datacollator", snippet)[0]
    options = {name: yaml.safe_load(value) for name, value in OPTION.findall(part)}
    options.pop("feature", None)
    return options


def rows_of(dataset) -> list[tuple[list[int], list[int]]]:
    return list(zip(dataset["input_ids"], dataset["document_starts"], strict=True))


def packed(texts, options, tokenizer="byte") -> list[tuple[list[int], list[int]]]:
    return rows_of(block_tokenize_fn({"text": texts}, tokenizer, "text", **options))


@pytest.mark.skipif(not SEEDS.is_dir(), reason=REASON)
def test_no_snippet_is_forgotten():
    texts = [file.read_text("utf-8") for file in sorted(SEEDS.glob("00[01]_*.txt"))]
    assert len(SNIPPETS) == sum(text.count("```yaml\n") for text in texts) == 14
    assert sum(is_whole(snippet.values[0]) for snippet in SNIPPETS) == 9


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_a_snippet_packs_what_its_options_say(snippet, write, texts, data):
    if not is_whole(snippet):
        options = dict(load_recipe(write(snippet)))
        assert options == yaml.safe_load(snippet)
        assert packed(texts, {"max_length": 512, "packed": True} | options)
        return
    recipe = load_recipe(write(snippet), {"tokenizer": "byte", "dataset": data.name})
    options = said_options(snippet)
    assert {"max_length", "packed", "packing_strategy", "overflow"} <= set(options)
    parts = 4 if "num_proc: 4" in snippet else 1  # datasets.map packs each process's part alone
    size = len(texts) // parts
    expected = [
        row
        for first in range(0, len(texts), size)
        for row in packed(texts[first : first + size], options)
    ]
    assert rows_of(recipe["train_dataset"]) == expected
    assert max(len(tokens) for tokens, _ in expected) <= options["max_length"]


@pytest.mark.parametrize("snippet", WHOLE)
def test_the_rows_of_a_snippet_go_through_its_collator(snippet, write, data):
    recipe = load_recipe(write(snippet), {"tokenizer": "byte", "dataset": data.name})
    rows = [recipe["train_dataset"][number] for number in range(2)]
    collator = recipe["collator"]
    assert isinstance(collator, DataCollatorForCausalLM)
    batch = collator(rows)
    assert batch["input_ids"].shape == (2, max(len(row["input_ids"]) for row in rows))
    for row, positions in zip(rows, batch["position_ids"], strict=True):
        assert [int(positions[start]) for start in row["document_starts"]] == [
            0 for _ in row["document_starts"]
        ]


@pytest.mark.skipif(not SEEDS.is_dir(), reason=REASON)
def test_seed_000_leaves_the_tokenizer_of_its_collator_open(write, data):
    recipe = load_recipe(write(fences("000", "yaml")[0]), {"tokenizer": "byte"})
    assert recipe["datasets_preprocessor_args"]["packing_strategy"] == "best_fit"
    partial = recipe["datacollator"]
    assert partial.func is DataCollatorForCausalLM
    assert partial.keywords == {"max_length": 4096, "return_tensors": "pt"}
    made = partial(tokenizer=recipe["tokenizer"])
    assert made == recipe["collator"]


@pytest.mark.skipif(not SEEDS.is_dir(), reason=REASON)
def test_seed_001_shares_one_tokenizer_and_takes_its_seed_from_a_variable(write, data, texts):
    snippet = next(text for text in fences("001", "yaml") if "[data_collator]" in text)
    variables = {"tokenizer": "byte", "dataset": data.name}
    recipe = load_recipe(write(snippet), variables)
    function = recipe["map_function"]
    assert function.keywords["tokenizer"] is recipe["tokenizer"]
    assert recipe["datacollator"].tokenizer is recipe["tokenizer"]
    assert recipe["datacollator"].packed_sequences is True
    assert function.keywords["seed"] == 42
    assert (
        load_recipe(write(snippet), variables | {"seed": 5})["map_function"].keywords["seed"] == 5
    )


@pytest.mark.skipif(not SEEDS.is_dir(), reason=REASON)
@pytest.mark.parametrize("name", ["qwen3", "gpt2"])
def test_a_snippet_packs_with_a_real_tokenizer(name, write, texts, data):
    snippet = fences("000", "yaml")[0]
    folder = folder_of(name)
    recipe = load_recipe(write(snippet), {"tokenizer": str(folder), "dataset": data.name})
    assert rows_of(recipe["train_dataset"]) == packed(texts, said_options(snippet), folder)
