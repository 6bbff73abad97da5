"""An index-only output is read by the same class: rows are gathered through its plan."""

from __future__ import annotations

import json
import pickle
import random
from pathlib import Path

import numpy as np
import pytest

from quire.corpus import replan
from quire.errors import CorruptFile, InvalidOption, InvalidState
from quire.packed import PackedDataset
from tests.corpus.corpora import jsonl, pack, texts


@pytest.fixture
def indexed(tmp_path: Path) -> Path:
    path = jsonl(tmp_path / "a.jsonl", texts(120))
    pack(path, tmp_path / "out", partition_size=800, index_only=True)
    replan(tmp_path / "out", max_length=64, strategy="wrapped")
    return tmp_path / "out"


@pytest.fixture
def plain(tmp_path: Path, indexed: Path) -> Path:
    pack(tmp_path / "a.jsonl", tmp_path / "plain")
    return tmp_path / "plain"


def same(one, two) -> bool:
    return one.keys() == two.keys() and all(
        one[name].dtype == two[name].dtype and np.array_equal(one[name], two[name]) for name in one
    )


def test_rows_have_the_values_types_and_columns_of_a_plain_output(indexed, plain):
    mine, theirs = PackedDataset(indexed), PackedDataset(plain)
    assert len(mine) == len(theirs) > 50
    assert all(same(*pair) for pair in zip(mine, theirs, strict=True))
    assert same(mine[-1], theirs[-1])
    assert not mine[0]["input_ids"].flags.writeable
    columns = ["document_offsets", "document_ids"]
    mine, theirs = (PackedDataset(path, columns=columns) for path in (indexed, plain))
    assert all(same(*pair) for pair in zip(mine, theirs, strict=True))
    assert list(mine[0]) == columns
    with pytest.raises(IndexError):
        mine[len(mine)]
    with pytest.raises(InvalidOption, match="unknown column 'length'"):
        PackedDataset(indexed, columns=["length"])


def test_a_plan_is_chosen_by_its_name(indexed, plain):
    first, second = PackedDataset(indexed), PackedDataset(indexed, plan="wrapped-64")
    assert (first.plan, first.max_length) == ("exact_fit-16", 16)
    assert (second.plan, second.max_length) == ("wrapped-64", 64)
    assert second.plans == ["exact_fit-16", "wrapped-64"]
    assert second.ledger.tokens.padding != first.ledger.tokens.padding
    assert len(second) < len(first)
    assert max(len(row["input_ids"]) for row in second) == 64
    with pytest.raises(InvalidOption, match=r"unknown plan of .* did you mean 'wrapped-64'"):
        PackedDataset(indexed, plan="wraped-64")
    with pytest.raises(InvalidOption, match="holds packed rows and no plans"):
        PackedDataset(plain, plan="wrapped-64")


def test_all_plans_share_one_mapped_form(indexed, tmp_path):
    PackedDataset(indexed)
    made = {p.name: p.stat().st_mtime_ns for p in (indexed / ".mapped").iterdir()}
    PackedDataset(indexed, plan="wrapped-64")
    assert {p.name: p.stat().st_mtime_ns for p in (indexed / ".mapped").iterdir()} == made
    for plan in ("exact_fit-16", "wrapped-64"):
        PackedDataset(indexed, plan=plan, cache_dir=tmp_path / "cache")
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_workers_receive_the_dataset_by_its_path_and_plan(indexed):
    dataset = PackedDataset(indexed, plan="wrapped-64")
    again = pickle.loads(pickle.dumps(dataset))  # noqa: S301
    assert again.plan == "wrapped-64"
    assert all(same(*pair) for pair in zip(again, dataset, strict=True))


@pytest.mark.parametrize("balance", [False, True])
def test_batches_are_those_of_a_plain_output_under_any_world_size(indexed, plain, balance):
    def sequence(path, world):
        loaders = [
            PackedDataset(path).loader(6, rank=r, world_size=world, seed=3, balance=balance)
            for r in range(world)
        ]
        return [
            sorted(tuple(row["input_ids"].tolist()) for batch in step for row in batch)
            for step in zip(*loaders, strict=True)
        ]

    whole = sequence(plain, 1)
    assert len(whole) > 5
    for world in (1, 2, 3):
        assert sequence(indexed, world) == whole


def test_a_state_resumes_exactly_and_belongs_to_its_plan(indexed):
    choose = random.Random(0)
    undisturbed = list(PackedDataset(indexed).loader(4, seed=1))
    stop = choose.randrange(1, len(undisturbed))
    loader = PackedDataset(indexed).loader(4, seed=1)
    for _ in zip(range(stop), loader, strict=False):
        pass
    state = json.loads(json.dumps(loader.state_dict()))
    again = PackedDataset(indexed).loader(4, seed=1)
    again.load_state_dict(state)
    rest = list(again)
    assert len(rest) == len(undisturbed) - stop
    for batch, expected in zip(rest, undisturbed[stop:], strict=True):
        assert all(same(*pair) for pair in zip(batch, expected, strict=True))
    other = PackedDataset(indexed, plan="wrapped-64").loader(4, seed=1)
    with pytest.raises(InvalidState, match="dataset is"):
        other.load_state_dict(state)


def test_torch_loaders_and_grain_accept_it(indexed):
    torch = pytest.importorskip("torch")
    dataset = PackedDataset(indexed)
    assert torch.equal(dataset.torch()[2]["input_ids"], torch.tensor(dataset[2]["input_ids"]))
    loader = dataset.loader(4, seed=1)
    batches = torch.utils.data.DataLoader(loader.torch(), batch_size=None, num_workers=2)
    expected = [[row["input_ids"].tolist() for row in batch] for batch in dataset.loader(4, seed=1)]
    assert [[row["input_ids"].tolist() for row in batch] for batch in batches] == expected
    grain = pytest.importorskip("grain")
    read = list(grain.MapDataset.source(dataset).map(lambda row: len(row["input_ids"])))
    assert read == [len(row["input_ids"]) for row in dataset]


def test_a_damaged_plan_is_an_error(indexed):
    file = indexed / "plans" / "wrapped-64.arrow"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(CorruptFile, match=r"wrapped-64\.arrow has other bytes than were written"):
        PackedDataset(indexed, plan="wrapped-64")
    file.unlink()
    with pytest.raises(CorruptFile, match=r"wrapped-64\.arrow is missing"):
        PackedDataset(indexed, plan="wrapped-64")
    assert len(PackedDataset(indexed)) > 50, "the other plan is whole"


@pytest.mark.parametrize("name", ["../x.arrow", "/etc/passwd", "plans/../x.arrow", None])
def test_52_a_manifest_may_not_name_a_plan_outside_its_folder(indexed, name):
    manifest = json.loads((indexed / "manifest.json").read_text())
    manifest["plans"][0]["file"] = name
    (indexed / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CorruptFile, match="is not a plan of its folder"):
        PackedDataset(indexed)


def test_52_a_plan_may_not_be_a_link(indexed, tmp_path):
    (indexed / "plans").rename(tmp_path / "elsewhere")
    (indexed / "plans").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CorruptFile, match="is not a plan of its folder"):
        PackedDataset(indexed)


def test_a_flipped_byte_of_a_mapped_document_is_never_served(indexed):
    row = PackedDataset(indexed)[0]["input_ids"].copy()
    piece = row[1:4].tobytes()
    files = (indexed / ".mapped").glob("*.arrow")
    file = next(file for file in files if piece in file.read_bytes())
    data = bytearray(file.read_bytes())
    data[data.index(piece)] ^= 1
    file.write_bytes(data)
    with pytest.raises(CorruptFile, match="arrow is damaged: column input_ids has another checks"):
        list(PackedDataset(indexed))
