"""Everything that quire 0.1.0 saved is read by this version, and continues as it did then.

Fault 29. The files were written by 0.1.0 from what `made` describes, and stay as they are: whoever
changes a format gives it a migration. States of streams are in tests/stream/golden_states.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import quire
from quire.errors import CorruptFile, InvalidState, OutputError
from quire.packed.manifest import content_of, read_manifest
from quire.plan import Plan
from quire.seals import FORMAT_VERSION
from quire.verify.inputs import verify_inputs
from quire.verify.output import verify_output
from tests.corpus.corpora import forge, hashes, jsonl, pack
from tests.formats import made
from tests.sealing import resealed
from tests.vision.inputs import numbers

FOLDER = Path(__file__).parent / "written_by_0_1_0"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())
OUTPUTS = ["packed", "indexed"]
VISION = ["known", "by_number", "epoch"]


def read(name):
    return json.loads((FOLDER / name).read_text())


@pytest.fixture
def copied(tmp_path):
    """A copy of an output, so that nothing is written next to the golden files."""

    def copy(name):
        return Path(shutil.copytree(FOLDER / name, tmp_path / name))

    return copy


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_output_opens_to_the_same_rows_and_verifies(name, copied):
    path = copied(name)
    dataset = quire.PackedDataset(path)
    assert dataset.manifest["format"]["version"] == FORMAT_VERSION
    assert made.rows_of(dataset) == EXPECTED[name]
    assert verify_output(path).problems == []


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_output_that_counts_eos_as_input_is_compared_with_its_inputs(name, copied, tmp_path):
    made.write_inputs(tmp_path)
    path = copied(name)
    report = verify_inputs(verify_output(path), [tmp_path / "a.jsonl"], "byte")
    assert (report.problems, report.compared) == ([], 12)
    manifest = read_manifest(path)
    assert content_of(manifest) == 276 == manifest["tokens"] - 18  # 18 BOS


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_loader_continues_to_the_same_batches(name, copied):
    loader = quire.PackedDataset(copied(name)).loader(2, seed=3)
    loader.load_state_dict(read(f"loader-{name}.json"))
    assert made.take_batches(loader, 3) == EXPECTED[f"loader-{name}"]


def test_an_output_can_be_replanned_and_then_has_the_current_version(copied):
    path = copied("indexed")
    ledger = quire.replan(path, max_length=48).ledger
    assert (ledger.tokens.input, ledger.tokens.special) == (276 - 12, 12 + 12)
    manifest = json.loads((path / "manifest.json").read_text())
    assert manifest["format"]["version"] == FORMAT_VERSION
    assert made.rows_of(quire.PackedDataset(path, plan="best_fit-24")) == EXPECTED["indexed"]
    assert verify_output(path).problems == []


def as_0_1_0_recorded(manifest):
    manifest["format"]["version"] = 1
    manifest["options"]["add_bos"] = True  # its default, whatever the tokenizer
    del manifest["options"]["tokens_column"]


def test_resume_leaves_a_finished_output_of_tokens_unchanged(tmp_path):
    path, out = jsonl(tmp_path / "a.jsonl", [{"input_ids": [1, 2, 3]}]), tmp_path / "out"
    pack(path, out, None, pretokenized=True)
    forge(out, as_0_1_0_recorded)
    before = hashes(out)
    assert pack(path, out, None, pretokenized=True, resume=True).num_rows == 1
    assert hashes(out) == before
    with pytest.raises(OutputError, match=r"tokens_column is 'input_ids' there and 'ids' here"):
        pack(path, out, None, pretokenized=True, resume=True, tokens_column="ids")


def test_an_online_packer_continues_to_the_same_rows():
    packer = made.online()
    packer.load_state_dict(read("online.json"))
    assert made.feed(packer, 9, 20) + packer.flush() == EXPECTED["online"]


def test_a_plan_file_holds_the_same_plan():
    plan = Plan.load(FOLDER / "plan.arrow")
    assert made.rows_of_plan(plan) == EXPECTED["plan"]


@pytest.mark.parametrize("name", VISION)
def test_a_packed_dataset_continues_to_the_same_packs(name):
    dataset = made.vision()[name]
    dataset.load_state_dict(read(f"vision-{name}.json"))
    assert numbers(dataset) == EXPECTED[f"vision-{name}"]


def test_training_continues_from_a_checkpoint(tmp_path):
    shutil.copytree(FOLDER / "checkpoint-3", tmp_path / "checkpoint-3")
    callback, arguments, state = made.checkpoint(tmp_path)
    callback.on_train_begin(arguments, state, None)
    assert len([pack for pack in callback._packs if pack]) == len(callback._packs) - 3


def forged(path, change):
    plain = json.loads(path.read_text())
    change(plain)
    path.write_text(json.dumps(resealed(plain) if "checksum" in plain else plain))


@pytest.mark.parametrize("version", [FORMAT_VERSION + 1, 0, True, "3", None])
def test_every_kind_refuses_a_version_that_it_cannot_read(version, copied, tmp_path):
    """One rule for all: a newer version asks for an upgrade, anything else is not a version."""
    message = "upgrade quire" if version == FORMAT_VERSION + 1 else "a version is an integer >= 1"
    path = copied("packed")
    loader = quire.PackedDataset(path).loader(2)
    with pytest.raises(InvalidState, match=message):
        loader.load_state_dict(resealed(loader.state_dict() | {"version": version}))
    with pytest.raises(InvalidState, match=message):
        made.online().load_state_dict(resealed(made.online().state_dict() | {"version": version}))
    dataset = made.vision()["known"]
    with pytest.raises(InvalidState, match=message):
        dataset.load_state_dict(resealed(dataset.state_dict() | {"version": version}))
    made.save_checkpoint(tmp_path)
    callback, arguments, state = made.checkpoint(tmp_path)
    forged(tmp_path / "checkpoint-3/quire_vision.json", lambda plain: plain.update(version=version))
    with pytest.raises(InvalidState, match=message):
        callback.on_train_begin(arguments, state, None)
    for name in OUTPUTS:
        output = path if name == "packed" else copied(name)
        forged(output / "manifest.json", lambda plain: plain["format"].update(version=version))
        with pytest.raises(CorruptFile, match=message):
            quire.PackedDataset(output)
    with pytest.raises(CorruptFile, match=message):
        quire.replan(tmp_path / "indexed", max_length=48)


class Stop(Exception):
    """What interrupts a run."""


def unfinished(tmp_path, **options):
    """Arguments of a run of two partitions that was interrupted after its first shard."""
    made.write_inputs(tmp_path)
    call = {"max_length": 24, "partition_size": 150, "max_bad_records": 1, **options}

    def interrupt(progress):
        if progress.commit is not None:
            raise Stop

    inputs, out = [tmp_path / "a.jsonl"], tmp_path / "out"
    with pytest.raises(Stop):
        quire.pack_corpus(inputs, out, "byte", on_progress=interrupt, **call)
    return inputs, out, call


@pytest.mark.parametrize("version", [1, FORMAT_VERSION])
def test_an_unfinished_run_of_either_version_is_resumed_to_the_same_bytes(version, tmp_path):
    inputs, out, call = unfinished(tmp_path)
    forged(out / ".quire/run.json", lambda plain: plain["format"].update(version=version))
    quire.pack_corpus(inputs, out, "byte", resume=True, **call)
    whole = quire.pack_corpus(inputs, tmp_path / "whole", "byte", **call)
    assert (out / "manifest.json").read_bytes() == (whole.path / "manifest.json").read_bytes()


def test_an_unfinished_run_of_a_newer_quire_asks_for_an_upgrade(tmp_path):
    inputs, out, call = unfinished(tmp_path)
    forged(out / ".quire/run.json", lambda plain: plain["format"].update(version=99))
    with pytest.raises(CorruptFile, match="has version 99 but this quire reads up to 3; upgrade"):
        quire.pack_corpus(inputs, out, "byte", resume=True, **call)
