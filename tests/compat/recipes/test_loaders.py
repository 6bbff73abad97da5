"""Recipes in use: tokenizers and datasets from local files, packed, collated and shown."""

from __future__ import annotations

import functools
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset
from tests.tokenizer_files import folder_of, parameters

from quire import ByteTokenizer, block_tokenize_fn
from quire.compat.recipes import examples_of, load_recipe, register_name
from quire.errors import InvalidOption, InvalidRecipe
from quire.text.tokenizer_file import FileTokenizer

pytestmark = pytest.mark.filterwarnings("ignore:block_tokenize_fn dropped")
PACKED = """\
[map_function]
.define: &map_function !partial:quire:block_tokenize_fn
    max_length: 256
    packed: True
"""


def refusal(recipe, target: str) -> str:
    with pytest.raises(InvalidRecipe) as caught:
        recipe[target]
    return str(caught.value)


# Tokenizers


@pytest.mark.parametrize("name", parameters("qwen3", "gpt2"))
@pytest.mark.parametrize("part", ["", "tokenizer.json"])
def test_a_tokenizer_is_loaded_from_a_folder_or_a_file(load, name, part):
    text = "a: !singleton:quire.compat.recipes:load_tokenizer [!var where]\n"
    recipe = load(text, where=str(folder_of(name) / part))
    assert isinstance(recipe["a"], FileTokenizer)
    assert recipe["a"].eos_token_id is not None


@pytest.mark.parametrize("name", parameters("qwen3"))
def test_the_loader_of_transformers_gives_a_tokenizer_of_transformers(load, name):
    text = (
        "a: !singleton:transformers:AutoTokenizer.from_pretrained [!var where]\n"
        "b: !singleton:transformers:AutoTokenizer.from_pretrained\n"
        "    pretrained_model_name_or_path: !var where\n"
        "    eos_token: '<|endoftext|>'\n"
    )
    recipe = load(text, where=str(folder_of(name)))
    assert recipe["a"].eos_token == "<|im_end|>"  # noqa: S105
    assert recipe["b"].eos_token_id == recipe["b"].pad_token_id


def test_an_object_is_used_unchanged(load):
    tokenizer = ByteTokenizer(byte_offset=9)
    text = "a: !singleton:quire.compat.recipes:load_tokenizer [!var t]\n"
    assert load(text, t=tokenizer)["a"] is tokenizer


def test_fault_55_a_tokenizer_that_contains_code_is_refused(load, write):
    write('{"auto_map": {"AutoTokenizer": ["code.Tokenizer", null]}}', "t/tokenizer_config.json")
    write((folder_of("small-gpt2") / "tokenizer.json").read_text(), "t/tokenizer.json")
    text = "a: !singleton:transformers:AutoTokenizer.from_pretrained [t]\n"
    assert "requires custom code (auto_map)" in refusal(load(text), "a")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("{pretrained_model_name_or_path: ., trust_remote_code: True}", "lets a file run code"),
        ("{pretrained_model_name_or_path: ., use_auth_token: x}", "unknown argument"),
        ("[gpt2]", "nothing is downloaded"),
    ],
)
def test_a_tokenizer_is_not_downloaded_and_runs_no_code(load, arguments, message):
    text = f"a: !singleton:transformers:AutoTokenizer.from_pretrained {arguments}\n"
    assert message in refusal(load(text), "a")


# Datasets


@pytest.fixture
def files(write):
    """Three documents in each of three files."""
    for name in "bac":
        lines = [json.dumps({"text": f"{name}{number}", "body": "x"}) for number in range(3)]
        write("\n".join(lines), f"data/{name}.jsonl")
    folder = write("one text\n", "data/note.txt").parent
    pq.write_table(pa.table({"text": ["p0", "p1"]}), folder / "p.parquet")
    return folder


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        ("{path: json, data_files: data/a.jsonl}", ["a0", "a1", "a2"]),
        ("[data/a.jsonl]", ["a0", "a1", "a2"]),
        ("[[data/c.jsonl, data/p.parquet]]", ["c0", "c1", "c2", "p0", "p1"]),
        ("{path: json, data_files: 'data/*.jsonl'}", [f"{n}{i}" for n in "abc" for i in range(3)]),
        ("{path: text, data_files: data/note.txt}", ["one text\n"]),
        (
            "{path: json, data_files: {train: data/a.jsonl, test: data/b.jsonl}, split: test}",
            ["b0", "b1", "b2"],
        ),
        ("[[{text: said here}]]", ["said here"]),
    ],
)
def test_texts_are_read_from_local_files(load, files, arguments, texts):
    assert load(f"a: !singleton:datasets:load_dataset {arguments}\n")["a"]["text"] == texts


def test_another_feature_than_text_can_be_read(load, files):
    text = "a: !singleton:datasets:load_dataset {path: data/a.jsonl, feature: body}\n"
    assert load(text)["a"]["body"] == ["x", "x", "x"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("{path: wikitext}", "nothing is downloaded"),
        ("{path: json}", "does not name a file; give data_files"),
        ("{path: data/none.jsonl}", "there is no"),
        ("{path: 'data/*.gz'}", "matches data/*.gz"),
        ("{path: 'data/../../*.jsonl'}", "leaves its folder"),
        ("{path: ../x.jsonl}", "is outside the recipe's folder"),
        ("{path: data}", "data is a folder"),
        ("{path: json, data_files: {train: data/a.jsonl}, split: tset}", "unknown split 'tset'"),
        ("{path: data/a.jsonl, streaming: True}", "unknown argument 'streaming'"),
    ],
)
def test_a_dataset_that_cannot_be_read_is_an_error_with_the_reason(load, files, arguments, message):
    said = refusal(load(f"a: !singleton:datasets:load_dataset {arguments}\n"), "a")
    assert "recipe.yaml, line 1: target 'a': " in said
    assert message in said


def test_a_bad_record_is_named(load, write):
    write('{"text": "a"}\n{"text": 3}\n', "bad.jsonl")
    said = refusal(load("a: !singleton:datasets:load_dataset [bad.jsonl]\n"), "a")
    assert "bad.jsonl: record 1 has int under 'text'" in said


def test_a_path_from_the_caller_may_be_anywhere(tmp_path):
    elsewhere, home = tmp_path / "elsewhere", tmp_path / "home"
    elsewhere.mkdir()
    home.mkdir()
    (elsewhere / "d.jsonl").write_text('{"text": "there"}\n')
    recipe = home / "r.yaml"
    named = "a: !singleton:datasets:load_dataset [!var files]\n"
    said = f"a: !singleton:datasets:load_dataset ['{elsewhere}/d.jsonl']\n"
    recipe.write_text(named)
    file = elsewhere / "d.jsonl"
    for files in (file, str(file), [str(file)], "../elsewhere/d.jsonl", str(elsewhere / "*.jsonl")):
        assert load_recipe(recipe, {"files": files})["a"]["text"] == ["there"]
    recipe.write_text(said)
    assert "is outside" in refusal(load_recipe(recipe), "a")
    assert load_recipe(recipe, folders=[elsewhere])["a"]["text"] == ["there"]


# The map


def whole(load, text: str = PACKED, **variables):
    return load(text, **{"tokenizer": "byte", "dataset": "data.jsonl"} | variables)


def test_a_recipe_makes_batches_of_documents(load, data, texts):
    recipe = whole(load)
    expected = block_tokenize_fn({"text": texts}, "byte", "text", max_length=256, packed=True)
    assert recipe["train_dataset"].to_dict() == expected
    batch = recipe["collator"]([recipe["train_dataset"][number] for number in range(4)])
    assert set(batch) == {"input_ids", "labels", "position_ids", "use_cache"}
    assert batch["input_ids"].shape == (4, 256)


def test_a_dataset_and_a_tokenizer_of_the_caller_are_used_unchanged(load):
    dataset = Dataset.from_list([{"body": "abc", "number": 1}, {"body": "de", "number": 2}])
    recipe = load(PACKED, tokenizer=ByteTokenizer(), dataset=dataset, feature="body")
    rows = recipe["train_dataset"]
    assert recipe["train_dataset_split"] is dataset
    assert rows.to_dict() == {
        "input_ids": [[1, 100, 101, 102, 2, 1, 103, 104, 2]],
        "document_starts": [[0, 5]],
    }


def test_arguments_of_the_preprocessor_override_those_of_the_function(load, data):
    text = PACKED + "[datasets_preprocessor_args]\ndatasets_preprocessor_args: {max_length: 64}\n"
    assert max(len(row) for row in whole(load, text)["train_dataset"]["input_ids"]) == 64


def test_arguments_of_the_preprocessor_override_what_the_map_function_is_offered(load):
    text = PACKED + "[datasets_preprocessor_args]\ndatasets_preprocessor_args: {feature: body}\n"
    dataset = Dataset.from_list([{"text": "abc", "body": "de"}])
    rows = load(text, tokenizer="byte", dataset=dataset)["train_dataset"]
    assert rows["input_ids"] == [[1, 103, 104, 2]]


def test_an_unknown_argument_of_the_preprocessor_is_named(load, data):
    text = PACKED + "[datasets_preprocessor_args]\ndatasets_preprocessor_args: {max_lenght: 64}\n"
    said = refusal(whole(load, text), "train_dataset")
    assert "unknown argument 'max_lenght'; did you mean 'max_length'?" in said


@pytest.mark.parametrize("num_proc", [0, -1, 100_000])
def test_a_recipe_cannot_start_any_number_of_processes(load, data, num_proc):
    text = f"{PACKED}[train_dataset]\n    == super()\n    num_proc: {num_proc}\n"
    assert "must be from 1 to 128" in refusal(whole(load, text), "train_dataset")


def test_an_option_that_the_function_refuses_is_reported_with_its_line(load, data):
    said = refusal(whole(load, PACKED.replace("256", "0")), "train_dataset")
    assert "target 'train_dataset': max_length is 0" in said


def test_documents_can_be_shuffled_before_they_are_packed(load, data, texts):
    text = PACKED + "[train_dataset]\n    == super()\n    shuffle: True\n    seed: 3\n"
    shuffled = whole(load, text)["train_dataset"]
    plain = whole(load)["train_dataset"]
    assert shuffled["input_ids"] != plain["input_ids"]
    content = [
        sorted(token for row in rows["input_ids"] for token in row if token > 2)
        for rows in (shuffled, plain)
    ]
    assert content[0] == content[1]


def upper_rows(batch, feature, suffix="!"):
    return {"shouted": [text.upper() + suffix for text in batch[feature]]}


def test_a_map_function_of_the_program_is_used_by_its_registered_name(load, data, texts):
    register_name("tests:upper_rows", upper_rows)
    text = "[map_function]\n.define: &map_function !partial:tests:upper_rows {suffix: '?'}\n"
    assert whole(load, text)["train_dataset"]["shouted"] == [t.upper() + "?" for t in texts]


def test_an_object_that_is_not_a_dataset_is_refused(load):
    said = refusal(load(PACKED, tokenizer="byte", dataset=3), "train_dataset")
    assert "path is 3, which does not name a file" in said


# Examples


def test_examples_are_the_first_rows_and_a_tokenizer_that_reads_them(load, data, texts):
    rows, tokenizer = examples_of(whole(load), 3)
    assert len(rows) == 3
    assert set(rows[0]) == {"input_ids", "document_starts"}
    assert texts[0] in tokenizer.decode(rows[0]["input_ids"])


def test_there_are_no_more_examples_than_rows(load, data):
    recipe = whole(load)
    assert len(examples_of(recipe, 10_000).rows) == len(recipe["train_dataset"])
    assert examples_of(recipe, 0).rows == []
    with pytest.raises(InvalidOption, match="num_examples is -1"):
        examples_of(recipe, -1)


def test_a_recipe_without_rows_has_no_examples(write):
    with pytest.raises(InvalidRecipe, match="unknown target 'train_dataset'"):
        examples_of(write("a: 1\n"))


def test_a_partial_of_a_recipe_works_in_datasets_map(load, texts):
    text = "f: !partial:quire:block_tokenize_fn {tokenizer: byte, feature: text, packed: True}\n"
    function = load(text)["f"]
    assert isinstance(function, functools.partial)
    dataset = Dataset.from_dict({"text": texts})
    rows = dataset.map(function, batched=True, remove_columns=["text"], keep_in_memory=True)
    assert rows.to_dict() == function({"text": texts})
