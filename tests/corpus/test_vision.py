"""Samples with images packed on disk: within all budgets, never cut, with checked images."""

from __future__ import annotations

import json
import os
import subprocess
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import quire
from quire.collate import MropeOptions, PackedVisionCollator, VisionPaddingFreeCollator
from quire.corpus import pack_corpus
from quire.corpus.image_grids import GridRule
from quire.corpus.job import Progress
from quire.errors import (
    InvalidDocument,
    InvalidOption,
    InvalidRow,
    OversizedDocument,
    SourceChanged,
    SourceError,
)
from quire.formats.images import decode_image, image_facts
from quire.formats.record_kinds import RecordProblem
from quire.packed import PackedDataset
from quire.verify.inputs import verify_inputs
from quire.verify.output import verify_output
from tests.commands import run
from tests.corpus.command import command
from tests.corpus.corpora import hashes
from tests.corpus.vision_samples import IMAGE, image, sample, samples, write
from tests.tokenizer_files import folder_of
from tests.training.launching import ROOT

BUDGETS = {"max_length": 64, "max_images": 4, "max_patches": 80, "image_token_id": IMAGE}
CONFIG = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "patch_size": 14,
    "merge_size": 2,
    "min_pixels": 56 * 56,
    "max_pixels": 1_003_520,
}


def pack(folder, records, **options):
    given = BUDGETS | options
    return pack_corpus([write(folder, records)], folder / "packed", **given)


def images_only(row):
    return [(one["path"], one["bytes"]) for one in row["images"]]


def processor(images, return_tensors):
    """Two pixel values for each patch: enough to tell images apart."""
    assert return_tensors == "np"
    grids = [[1, one.height // 14, one.width // 14] for one in images]
    means = [np.asarray(one).mean() for one in images]
    pixels = [np.full((t * h * w, 2), mean) for (t, h, w), mean in zip(grids, means, strict=True)]
    return {"pixel_values": np.concatenate(pixels), "image_grid_thw": np.array(grids)}


def collator(folder, **options):
    plain = VisionPaddingFreeCollator(mrope=MropeOptions(image_token_id=IMAGE), return_tensors="np")
    return PackedVisionCollator(processor, plain, image_root=folder, **options)


def test_a_row_holds_tokens_and_references_to_images(tmp_path):
    records = [
        sample(tmp_path, "a", 2, (1, 2)),
        sample(tmp_path, "b", 1),
        sample(tmp_path, "c", 1, (1, 1)),
    ]
    result = pack(
        tmp_path, records, max_length=16, strategy="greedy", max_images=None, max_patches=None
    )
    (row,) = pq.read_table(tmp_path / "packed" / "data").to_pylist()
    digests = [image.pop("sha256") for image in row["images"]]
    assert row == {
        "input_ids": [5, 5, 7, 7, 6, 6, 6, 5, 6, 6, 6, 5, 7, 6, 6, 6],
        "labels": [-100] * 4 + [6] * 3 + [-100] + [6] * 3 + [-100] * 2 + [6] * 3,
        "mm_token_type_ids": [0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0],
        "document_starts": [0, 7, 11],
        "document_ids": [0, 1, 2],
        "document_offsets": [0, 0, 0],
        "num_images": [1, 0, 1],
        "image_grid_thw": [[1, 2, 4], [1, 2, 2]],
        "images": [{"path": "a-0.png", "bytes": None}, {"path": "c-0.png", "bytes": None}],
    }
    assert len(set(digests)) == 2
    assert result.ledger.tokens.trained == 9
    assert result.manifest["options"]["record_kind"] == "vision"


@pytest.mark.parametrize("embed", [False, True])
@pytest.mark.parametrize("strategy", ["exact_fit", "tight"])
def test_every_sample_is_there_once_within_all_budgets(tmp_path, embed, strategy):
    records = samples(tmp_path)
    pack(tmp_path, records, embed_images=embed, strategy=strategy)
    found = {}
    for row in PackedDataset(tmp_path / "packed").with_sources():
        assert len(row["input_ids"]) <= 64
        assert row["num_images"].sum() <= 4
        assert row["image_grid_thw"].prod(axis=1).sum() <= 80
        parts = collator(tmp_path).samples(row)
        found |= dict(zip(row["document_ids"].tolist(), parts, strict=True))
    assert sorted(found) == list(range(len(records)))
    for number, record in enumerate(records):
        assert found[number]["input_ids"].tolist() == record["input_ids"]
        assert found[number]["labels"].tolist() == record["labels"]
        grids = found[number].get("image_grid_thw", np.zeros((0, 3)))
        assert grids.tolist() == record["image_grid_thw"]
        if record["images"]:
            opened = [Image.open(tmp_path / name) for name in record["images"]]
            expected = processor(opened, "np")["pixel_values"]
            assert np.array_equal(found[number]["pixel_values"], expected)


def test_a_batch_is_that_of_the_samples_themselves(tmp_path):
    records = samples(tmp_path, 12)
    pack(tmp_path, records)
    rows = list(PackedDataset(tmp_path / "packed").with_sources())
    batch = collator(tmp_path)(rows)
    plain = VisionPaddingFreeCollator(mrope=MropeOptions(image_token_id=IMAGE), return_tensors="np")

    def encoded(record):
        own = {name: record[name] for name in ("input_ids", "labels")}
        if not record["images"]:
            return own
        opened = [Image.open(tmp_path / name) for name in record["images"]]
        return own | dict(processor(opened, "np"))

    packs = [[encoded(records[number]) for number in row["document_ids"].tolist()] for row in rows]
    expected = plain(packs)
    assert batch.keys() == expected.keys()
    for name in batch:
        assert np.array_equal(batch[name], expected[name]), name


def test_text_without_an_image_needs_no_processor(tmp_path):
    records = [sample(tmp_path, "a", 4), sample(tmp_path, "b", 2, (1, 1))]
    pack(tmp_path, records, max_documents_per_row=1, shuffle=False)
    rows = list(PackedDataset(tmp_path / "packed"))
    bare = PackedVisionCollator(None, VisionPaddingFreeCollator(return_tensors="np"))
    assert bare(rows[:1])["input_ids"].shape == (1, 7)
    with pytest.raises(InvalidRow, match="no image_processor"):
        bare(rows[1:])


@pytest.mark.parametrize("world", [1, 2])
def test_loaders_deliver_the_same_samples_on_any_number_of_ranks(tmp_path, world):
    pack(tmp_path, samples(tmp_path), embed_images=True)
    dataset = PackedDataset(tmp_path / "packed")
    whole = [batch["input_ids"] for batch in dataset.loader(2, collate=collator(None))]
    loaders = [
        dataset.loader(2, rank=rank, world_size=world, collate=collator(None).samples_of)
        for rank in range(world)
    ]
    join = collator(None).collator
    steps = zip(*loaders, strict=True)
    parts = [join([pack for packs in step for pack in packs])["input_ids"] for step in steps]
    assert len(whole) == len(parts) > 3
    assert all(np.array_equal(one, other) for one, other in zip(whole, parts, strict=True))


def test_a_loader_of_packed_samples_resumes_with_the_same_batches(tmp_path):
    pack(tmp_path, samples(tmp_path), embed_images=True)
    dataset = PackedDataset(tmp_path / "packed")
    whole = [batch["input_ids"] for batch in dataset.loader(1, collate=collator(None))]
    loader = dataset.loader(1, collate=collator(None))
    running = iter(loader)
    for _ in range(3):
        next(running)
    state = json.loads(json.dumps(loader.state_dict()))
    again = PackedDataset(tmp_path / "packed").loader(1, collate=collator(None))
    again.load_state_dict(state)
    rest = [batch["input_ids"] for batch in again]
    assert all(np.array_equal(*pair) for pair in zip(rest, whole[3:], strict=True))


def test_training_data_of_packed_samples_resumes_with_the_same_microbatches(tmp_path):
    from quire.training import TrainingData

    pack(tmp_path, samples(tmp_path), embed_images=True)
    dataset = PackedDataset(tmp_path / "packed")

    def data():
        return TrainingData(dataset.loader(2), accumulation=2, collate=collator(None))

    whole, part = [batch["input_ids"] for batch in data()], data()
    running = iter(part)
    for _ in range(3):
        next(running)
    resumed = data()
    resumed.load_state_dict(json.loads(json.dumps(part.state_dict())))
    rest = [batch["input_ids"] for batch in resumed]
    assert len(rest) == len(whole) - 3 > 2
    assert all(np.array_equal(*pair) for pair in zip(rest, whole[3:], strict=True))


@pytest.mark.parametrize("embed", [False, True])
def test_an_interrupted_run_continues_to_the_same_bytes(tmp_path, embed):
    records, out = samples(tmp_path, 60), tmp_path / "packed"
    options = BUDGETS | {"embed_images": embed, "partition_size": "1K"}
    whole = pack_corpus([write(tmp_path, records)], tmp_path / "whole", **options)
    assert len(whole.manifest["shards"]) > 3

    class Stopped(Exception):
        pass

    def stop(progress: Progress) -> None:
        if progress.commit is not None and progress.commit.partition == 1:
            raise Stopped

    with pytest.raises(Stopped):
        pack_corpus([tmp_path / "a.jsonl"], out, on_progress=stop, **options)
    assert not (out / "manifest.json").exists()
    pack_corpus([tmp_path / "a.jsonl"], out, resume=True, workers=1, **options)
    assert hashes(out) == hashes(tmp_path / "whole")


@pytest.mark.slow
def test_a_killed_run_continues_to_the_same_bytes(tmp_path):
    inputs, out = write(tmp_path, samples(tmp_path, 200)), tmp_path / "packed"
    budgets = BUDGETS | {"max_patches": 120}
    options = budgets | {"embed_images": True, "partition_size": 1024}
    pack_corpus([inputs], tmp_path / "whole", **options)
    given = [
        word for pair in budgets.items() for word in (f"--{pair[0].replace('_', '-')}", pair[1])
    ]
    words = command(
        "pack", inputs, "--out", out, *given, "--embed-images", "--partition-size", 1024
    )
    packing = subprocess.Popen(words, env={**os.environ, "PYTHONPATH": str(ROOT / "src")})
    while packing.poll() is None and not list((out / ".quire").glob("shard-*.json")):
        time.sleep(0.005)
    packing.kill()
    packing.wait()
    assert not (out / "manifest.json").exists()
    pack_corpus([inputs], out, resume=True, **options)
    assert hashes(out) == hashes(tmp_path / "whole")


def test_references_and_embedded_images_make_the_same_rows(tmp_path):
    records = samples(tmp_path)
    size = {"partition_size": "1M"}
    pack_corpus([write(tmp_path, records)], tmp_path / "one", **BUDGETS, **size)
    pack_corpus([tmp_path / "a.jsonl"], tmp_path / "two", embed_images=True, **BUDGETS, **size)
    for one, two in zip(
        PackedDataset(tmp_path / "one"), PackedDataset(tmp_path / "two"), strict=True
    ):
        assert np.array_equal(one["input_ids"], two["input_ids"])
        assert [(p, None) for p, _ in images_only(two)] == images_only(one)
        read = [(tmp_path / path).read_bytes() for path, _ in images_only(two)]
        assert [data for _, data in images_only(two)] == read


@pytest.mark.parametrize("form", ["bytes", "struct", "embedded struct"])
def test_images_of_a_table_are_read_from_its_bytes(tmp_path, form):
    records = samples(tmp_path, 10)
    for record in records:
        data = [(tmp_path / name).read_bytes() for name in record["images"]]
        structs = [{"bytes": one, "path": None} for one in data]
        record["images"] = data if form == "bytes" else structs
    table = pa.Table.from_pylist(records)
    pq.write_table(table, tmp_path / "a.parquet")
    pack_corpus(
        [tmp_path / "a.parquet"], tmp_path / "packed", **BUDGETS, embed_images="emb" in form
    )
    report = verify_output(tmp_path / "packed")
    assert verify_inputs(report, [tmp_path / "a.parquet"], None).ok, report.problems
    assert report.compared == 10
    assert len([collator(None)([row]) for row in PackedDataset(tmp_path / "packed")]) > 2


def damaged(folder, what):
    """A sample that cannot be packed, and what is said about it."""
    made = sample(folder, "bad", 2, (1, 2))
    path = folder / "bad-0.png"
    if what == "truncated":
        path.write_bytes(path.read_bytes()[:-400])
    elif what == "no image":
        path.write_bytes(b"GIF?" * 9)
    elif what == "missing":
        path.unlink()
    elif what == "url":
        made["images"] = ["https://example.com/a.png"]
    elif what == "bomb":
        Image.new("1", (9_000, 9_000)).save(path)
    elif what == "placeholders":
        made["input_ids"][2] = 5
    elif what == "grids":
        del made["image_grid_thw"]
    elif what == "fewer grids":
        made["image_grid_thw"] = []
    elif what == "video":
        made["videos"] = ["a.mp4"]
    elif what == "odd grid":
        made["image_grid_thw"] = [[1, 1, 8]]
    elif what == "labels":
        made["labels"].pop()
    elif what == "padded":
        made["attention_mask"] = [0, *[1] * 6]
    return made


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("truncated", "cannot be decoded"),
        ("no image", "of no known format"),
        ("missing", "does not exist"),
        ("url", "is a URL"),
        ("bomb", "pixels"),
        ("placeholders", "1 image placeholders in input_ids but its images need 2"),
        ("grids", "no image_grid_thw"),
        ("fewer grids", "0 image_grid_thw but 1 images"),
        ("video", "only images are packed"),
        ("odd grid", "not a multiple of merge_size 2"),
        ("labels", "7 input_ids but 6 labels"),
        ("padded", "is padded"),
    ],
)
def test_a_bad_record_is_listed_and_left_out(tmp_path, what, reason):
    records = [sample(tmp_path, "a", 2, (1, 1)), damaged(tmp_path, what), sample(tmp_path, "c", 2)]
    with pytest.raises(InvalidDocument, match=rf"a\.jsonl: record 1.*{reason}"):
        pack(tmp_path, records)
    result = pack(tmp_path, records, max_bad_records=1)
    assert result.ledger.documents.dropped["bad_record"] == 1
    (listed,) = (tmp_path / "packed" / "bad_records.jsonl").read_text().splitlines()
    assert json.loads(listed)["record"] == 1
    assert reason in json.loads(listed)["reason"]
    report = verify_inputs(verify_output(tmp_path / "packed"), [tmp_path / "a.jsonl"], None)
    assert report.ok, report.problems
    assert report.compared == 2


@pytest.mark.parametrize(
    ("sizes", "question", "reason"),
    [
        (((1, 1),), 70, "has 74 tokens but a row holds 64"),
        (((1, 1),) * 5, 2, "has 5 images but a row holds 4"),
        (((5, 5),), 2, "has 100 patches but a row holds 80"),
    ],
)
def test_a_sample_over_a_budget_is_never_cut(tmp_path, sizes, question, reason):
    records = [sample(tmp_path, "a", 2, (1, 1)), sample(tmp_path, "b", question, *sizes)]
    with pytest.raises(OversizedDocument, match=f"record 1 {reason}"):
        pack(tmp_path, records)
    result = pack(tmp_path, records, overlong="drop")
    name = "too_long" if question == 70 else "skipped_oversized"
    assert dict(result.ledger.documents.dropped) | {name: 1} == dict(
        result.ledger.documents.dropped
    )
    report = verify_inputs(verify_output(tmp_path / "packed"), [tmp_path / "a.jsonl"], None)
    assert report.ok, report.problems


@pytest.mark.parametrize(
    "options",
    [
        {"overlong": "truncate"},
        {"overlong": "fill"},
        {"strategy": "wrapped"},
        {"strategy": "greedy"},
        {"stride": 2},
        {"align": 8},
        {"index_only": True},
        {"image_token_id": None},
        {"image_root": "nowhere"},
    ],
)
def test_options_that_samples_with_images_do_not_have_are_refused(tmp_path, options):
    with pytest.raises(InvalidOption):
        pack(tmp_path, samples(tmp_path, 4), **options)


def test_options_of_images_are_refused_for_text(tmp_path):
    (tmp_path / "a.txt").write_text("abc")
    with pytest.raises(InvalidOption, match="max_images=2 is only for images"):
        pack_corpus([tmp_path / "a.txt"], tmp_path / "out", "byte", max_length=8, max_images=2)


def test_images_are_not_left_out_by_pack_dataset(tmp_path):
    with pytest.raises(InvalidOption, match="pack_dataset would leave out"):
        quire.pack_dataset(samples(tmp_path, 4), max_length=64)


def test_an_image_that_changed_after_it_was_packed_is_found(tmp_path):
    pack(tmp_path, [sample(tmp_path, "a", 2, (1, 2))])
    assert verify_output(tmp_path / "packed", image_root=tmp_path).ok
    assert verify_output(tmp_path / "packed").notes
    image(tmp_path / "a-0.png", 1, 2, seed=9)
    (problem,) = verify_output(tmp_path / "packed", image_root=tmp_path).problems
    assert "a-0.png is not the one that was packed" in problem
    with pytest.raises(SourceChanged, match=r"a-0\.png is not the image that was packed"):
        collator(tmp_path)(list(PackedDataset(tmp_path / "packed")))
    with pytest.raises(SourceError, match="image_root"):
        collator(tmp_path / "other")(list(PackedDataset(tmp_path / "packed")))


def test_another_processor_than_the_one_that_packed_is_refused(tmp_path):
    pack(tmp_path, [sample(tmp_path, "a", 2, (1, 2))])
    image(tmp_path / "a-0.png", 1, 2)

    def larger(images, return_tensors):
        made = processor(images, return_tensors)
        return made | {"image_grid_thw": made["image_grid_thw"] * [1, 2, 2]}

    other = PackedVisionCollator(larger, image_root=tmp_path)
    with pytest.raises(InvalidRow, match=r"grids \[\[1, 4, 8\]\] .* packed with \[\[1, 2, 4\]\]"):
        other(list(PackedDataset(tmp_path / "packed")))


def change(out, name, edit):
    """Edit a column of the only shard, and give the manifest its new hash."""
    from tests.fuzz.test_found import rewrite_shard

    path = next((out / "data").iterdir())
    rows = pq.read_table(path)
    edited = pa.array(edit(rows[name].to_pylist()), rows.schema.field(name).type)
    at = rows.schema.get_field_index(name)
    manifest = json.loads((out / "manifest.json").read_text())
    rewrite_shard(out, manifest, rows.set_column(at, rows.schema.field(name), edited))


def drop_one(images):
    return [one[:-1] for one in images]


def other_bytes(images):
    return [[one | {"bytes": one["bytes"][:-1] + b"?"} for one in row] for row in images]


@pytest.mark.parametrize(
    ("name", "edit", "problem"),
    [
        ("images", drop_one, "other images or grids than num_images"),
        ("images", other_bytes, "an embedded image is not the one"),
        ("image_grid_thw", lambda rows: [[[1, 2, 6]] * len(r) for r in rows], "placeholders but"),
        (
            "mm_token_type_ids",
            lambda rows: [[0] * len(r) for r in rows],
            "not where the token 7 is",
        ),
        ("document_offsets", lambda rows: [[1] * len(r) for r in rows], "never cut"),
        ("labels", lambda rows: [[6] * len(r) for r in rows], "trains placeholders"),
    ],
)
def test_verify_finds_what_was_changed(tmp_path, name, edit, problem):
    pack(
        tmp_path,
        [sample(tmp_path, "a", 2, (1, 2)), sample(tmp_path, "b", 3, (1, 1))],
        embed_images=True,
    )
    change(tmp_path / "packed", name, edit)
    assert any(problem in one for one in verify_output(tmp_path / "packed").problems)


def test_verify_finds_rows_over_a_budget(tmp_path):
    from tests.corpus.corpora import forge

    pack(tmp_path, [sample(tmp_path, "a", 2, (1, 2)), sample(tmp_path, "b", 3, (1, 1))])
    forge(tmp_path / "packed", lambda manifest: manifest["options"].update(max_images=1))
    assert any(
        "2 images, more than 1" in one for one in verify_output(tmp_path / "packed").problems
    )


def test_verify_finds_a_sample_with_another_image_than_the_input(tmp_path):
    pack(tmp_path, [sample(tmp_path, "a", 2, (1, 2)), sample(tmp_path, "b", 3, (1, 1))])
    image(tmp_path / "a-0.png", 1, 2, seed=9)
    report = verify_inputs(verify_output(tmp_path / "packed"), [tmp_path / "a.jsonl"], None)
    assert report.problems == ["record 0 of input 0: images 0 to 7 differ from the input"]


def model_folder(path):
    """A small tokenizer with Qwen's image tokens, its chat template, and an image processor."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder_of("small-qwen3"))
    tokenizer.add_tokens(
        ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>"], special_tokens=True
    )
    tokenizer.save_pretrained(path)
    (path / "preprocessor_config.json").write_text(json.dumps(CONFIG))
    return tokenizer


LLAVA = {
    "conversations": [
        {"from": "human", "value": "<image>\nWhat is it?"},
        {"from": "gpt", "value": "Noise."},
    ]
}
SWIFT = {
    "messages": [
        {"role": "user", "content": "<image>\nWhat is it?"},
        {"role": "assistant", "content": "Noise."},
    ]
}
PARTS = {
    "messages": [
        {
            "role": "user",
            "content": [{"type": "image"}, {"type": "text", "text": "\nWhat is it?"}],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "Noise."}]},
    ]
}


@pytest.mark.slow
@pytest.mark.parametrize("record", [LLAVA, SWIFT, PARTS], ids=["llava", "ms-swift", "parts"])
def test_messages_with_images_are_rendered_and_their_images_measured(tmp_path, record):
    tokenizer = model_folder(tmp_path / "model")
    image(tmp_path / "a.png", 2, 3)
    inputs = write(tmp_path, [record | {"images": ["a.png"]}])
    pack_corpus([inputs], tmp_path / "packed", str(tmp_path / "model"), max_length=64)
    (row,) = PackedDataset(tmp_path / "packed")
    text = "<|vision_start|>" + "<|image_pad|>" * 6 + "<|vision_end|>\nWhat is it?"
    turns = [{"role": "user", "content": text}, {"role": "assistant", "content": "Noise."}]
    expected = tokenizer(tokenizer.apply_chat_template(turns, tokenize=False))["input_ids"]
    assert row["input_ids"].tolist() == expected
    assert row["image_grid_thw"].tolist() == [[1, 4, 6]]
    pad = tokenizer.convert_tokens_to_ids("<|image_pad|>")
    assert (row["mm_token_type_ids"] == (row["input_ids"] == pad)).all()
    trained = row["input_ids"][row["labels"] != -100].tolist()
    assert tokenizer.decode(trained).endswith("Noise.<|im_end|>")
    report = verify_output(tmp_path / "packed", image_root=tmp_path)
    assert report.ok
    assert verify_inputs(report, [inputs], str(tmp_path / "model")).ok and report.compared == 1


CHANGED = {
    "the picture": (
        lambda folder: image(folder / "a.png", 2, 3, seed=9),
        "record 0 of input 0: images 0 to 36 differ from the input",
    ),
    "a taller picture": (
        lambda folder: image(folder / "a.png", 3, 3),
        "record 0 of input 0: tokens 0 to 36 differ from the input",
    ),
    "no picture": (
        lambda folder: (folder / "a.png").unlink(),
        "record 0 of input 0 is bad, but is not listed as bad",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", CHANGED)
def test_verify_compares_messages_with_images_with_their_inputs(tmp_path, what):
    edit, problem = CHANGED[what]
    model_folder(tmp_path / "model")
    image(tmp_path / "a.png", 2, 3)
    bad = {"max_bad_records": 1}
    records = [SWIFT | {"images": ["a.png"]}, SWIFT | {"images": ["a.png", "b.png"]}]
    inputs = write(tmp_path, records)
    pack_corpus([inputs], tmp_path / "packed", str(tmp_path / "model"), max_length=64, **bad)

    def problems() -> list[str]:
        report = verify_output(tmp_path / "packed")
        return verify_inputs(report, [inputs], str(tmp_path / "model")).problems

    assert problems() == []
    edit(tmp_path)
    assert problem in problems()


def test_messages_with_another_number_of_images_are_bad_records(tmp_path):
    model_folder(tmp_path / "model")
    image(tmp_path / "a.png", 2, 3)
    inputs = write(tmp_path, [SWIFT | {"images": ["a.png", "a.png"]}])
    with pytest.raises(InvalidDocument, match="has 1 <image> in its messages but 2 images"):
        pack_corpus([inputs], tmp_path / "packed", str(tmp_path / "model"), max_length=64)


def test_messages_need_the_image_processor_of_the_model(tmp_path):
    model_folder(tmp_path / "model")
    image(tmp_path / "a.png", 2, 3)
    inputs = write(tmp_path, [SWIFT | {"images": ["a.png"]}])
    config = tmp_path / "model" / "preprocessor_config.json"
    config.write_text(json.dumps(CONFIG | {"image_processor_type": "CLIPImageProcessor"}))
    with pytest.raises(InvalidOption, match="CLIPImageProcessor"):
        pack_corpus([inputs], tmp_path / "packed", str(tmp_path / "model"), max_length=64)
    config.unlink()
    with pytest.raises(InvalidOption, match="encoded"):
        pack_corpus([inputs], tmp_path / "packed", str(tmp_path / "model"), max_length=64)


@pytest.mark.slow
def test_grids_are_those_of_the_image_processor():
    from transformers import Qwen2VLImageProcessor

    made = Qwen2VLImageProcessor(min_pixels=56 * 56, max_pixels=400_000)
    rule = GridRule.of_config(CONFIG | {"max_pixels": 400_000})
    random = np.random.default_rng(0)
    for _ in range(40):
        height, width = random.integers(8, 1200, 2).tolist()
        grid = made(images=[Image.new("RGB", (width, height))], return_tensors="np")[
            "image_grid_thw"
        ]
        assert rule.grid(height, width) == grid[0].tolist(), (height, width)
    with pytest.raises(RecordProblem, match="elongated"):
        rule.grid(1, 300)


def test_the_command_packs_verifies_and_shows_samples(tmp_path):
    records = samples(tmp_path, 8)
    inputs, out = write(tmp_path, records), tmp_path / "packed"
    made = run(
        *("pack", inputs, "--out", out, "--max-length", 64, "--max-images", 4),
        *("--image-token-id", IMAGE, "--image-root", tmp_path),
    )
    assert made.returncode == 0, made.stderr
    checked = run("verify", out, "--inputs", inputs, "--image-root", tmp_path)
    assert checked.returncode == 0, checked.stdout
    assert "8 compared with the inputs" in checked.stdout
    shown = run("inspect", out, "-n", 1, "--labels")
    assert "image" in shown.stdout
    assert run("inspect", out, "--json").returncode == 0


def test_an_image_that_cannot_be_read_now_is_not_a_bad_record(tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root reads every file")
    records = [sample(tmp_path, "a", 2, (1, 2))]
    (tmp_path / "a-0.png").chmod(0)
    with pytest.raises(SourceError, match=r"a-0\.png cannot be read"):
        pack(tmp_path, records, max_bad_records=9)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_photos_of_a_camera_that_was_held_upright_are_turned_as_datasets_turns_them(
    tmp_path, orientation
):
    exif = Image.Exif()
    exif[0x0112] = orientation
    pixels = np.random.default_rng(0).integers(0, 255, (3, 2, 3)).astype(np.uint8)
    large = Image.fromarray(pixels).resize((56, 28), Image.Resampling.NEAREST)
    large.save(tmp_path / "photo.png", exif=exif)
    data = (tmp_path / "photo.png").read_bytes()
    from datasets import Image as Feature

    expected = Feature().decode_example({"path": None, "bytes": data}).convert("RGB")
    facts = image_facts(data, 1 << 20)
    assert (facts.width, facts.height) == expected.size
    assert np.array_equal(np.asarray(decode_image(data)), np.asarray(expected))


def test_a_wrong_folder_of_images_is_told_with_the_number_of_all_problems(tmp_path):
    pack(tmp_path, [sample(tmp_path, f"s{number}", 2, (1, 1)) for number in range(25)])
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    done = run("verify", tmp_path / "packed", "--image-root", wrong)
    assert done.returncode == 1
    assert done.stdout.count("cannot be read: ") == 20
    assert "and 5 more problems\n" in done.stdout
    assert f"25 images cannot be read; relative paths start at {wrong}: if" in done.stdout
    assert "name the right one (--image-root)" in done.stdout
