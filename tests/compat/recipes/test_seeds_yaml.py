"""Every YAML snippet of seeds 000 and 001, unchanged, and recipes of the same form."""

from __future__ import annotations

import re

import pytest
import yaml
from tests.compat.recipes.seed_fences import (
    ANCHORED,
    HERE,
    OWN,
    PREPROCESSED,
    SEEDS,
    SHUFFLED,
    recipes,
)
from tests.tokenizer_files import folder_of, parameters

from quire import block_tokenize_fn, load_recipe
from quire.collate import DataCollatorForCausalLM

pytestmark = pytest.mark.filterwarnings("ignore:block_tokenize_fn dropped")
SNIPPETS = recipes()
WHOLE = [one for one in SNIPPETS if re.search(r"-- extends|\[map_function\]", one.values[0])]
OPTION = re.compile(r"^ {4}(\w+): ([^*!{#\n]+?)\s*(?:#.*)?$", re.MULTILINE)


def is_whole(snippet: str) -> bool:
    """Whether the snippet is a recipe with a parent, and not only some options."""
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


def test_no_snippet_is_forgotten():
    texts = [file.read_text("utf-8") for file in sorted(SEEDS.glob("00[01]_*.txt"))]
    in_seeds = sum(text.count("```yaml\n") for text in texts)
    assert in_seeds == (14 if HERE else 0)
    assert len(SNIPPETS) == in_seeds + len(OWN)
    assert sum(is_whole(snippet.values[0]) for snippet in SNIPPETS) == (9 if HERE else 0) + 4


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


def test_a_collator_without_a_tokenizer_gets_the_one_of_the_recipe(write):
    recipe = load_recipe(write(PREPROCESSED), {"tokenizer": "byte"})
    assert recipe["datasets_preprocessor_args"]["packing_strategy"] == "first_fit"
    partial = recipe["datacollator"]
    assert partial.func is DataCollatorForCausalLM
    assert partial.keywords == {"max_length": 2048, "return_tensors": "pt"}
    assert partial(tokenizer=recipe["tokenizer"]) == recipe["collator"]


def test_a_recipe_shares_one_tokenizer_and_takes_its_seed_from_a_variable(write, data):
    variables = {"tokenizer": "byte", "dataset": data.name}
    recipe = load_recipe(write(ANCHORED), variables)
    function = recipe["map_function"]
    assert function.keywords["tokenizer"] is recipe["tokenizer"]
    assert recipe["datacollator"].tokenizer is recipe["tokenizer"]
    assert recipe["datacollator"].packed_sequences is True
    assert function.keywords["seed"] == 11
    other = load_recipe(write(ANCHORED), variables | {"seed": 5})
    assert other["map_function"].keywords["seed"] == 5


@pytest.mark.parametrize("name", parameters("qwen3", "gpt2"))
def test_a_recipe_packs_with_a_tokenizer_in_a_folder(name, write, texts, data):
    folder = folder_of(name)
    recipe = load_recipe(write(SHUFFLED), {"tokenizer": str(folder), "dataset": data.name})
    assert rows_of(recipe["train_dataset"]) == packed(texts, said_options(SHUFFLED), folder)
