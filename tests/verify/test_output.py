"""A packed dataset is recounted from its files, and every damage is detected."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.commands import run
from tests.corpus.corpora import forge, jsonl, pack, rows, texts

from quire.errors import CorruptFile, InvalidOption
from quire.packed import PackedDataset
from quire.verify.inputs import verify_inputs
from quire.verify.output import verify_output

FIRST = "data/shard-00000-000.parquet"


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    records = [*texts(60), {"text": None}, "x" * 100]
    path = jsonl(tmp_path / "a.jsonl", records)
    pack(path, tmp_path / "out", partition_size=700, max_bad_records=1, stride=2)
    return tmp_path / "out"


def rewrite(out: Path, change, shard: str = FIRST) -> None:
    """Change the rows of a shard and make its checksum and size agree again."""
    records = pq.read_table(out / shard).to_pylist()
    change(records)
    table = pa.Table.from_pylist(records, schema=pq.read_schema(out / shard))
    pq.write_table(table, out / shard)
    data = (out / shard).read_bytes()

    def agree(manifest):
        (entry,) = [entry for entry in manifest["shards"] if entry["file"] == shard]
        entry.update(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))

    forge(out, agree)


@pytest.mark.parametrize(
    "change",
    [
        lambda manifest: manifest["options"].update(seed=7),
        lambda manifest: manifest["inputs"][0].update(size=1),
        lambda manifest: manifest.update(note="mine"),
        lambda manifest: manifest.update(checksum=None),
    ],
)
def test_any_change_of_the_manifest_is_reported(packed, change):
    """Also fields that cannot be compared with a shard."""
    manifest = json.loads((packed / "manifest.json").read_text())
    change(manifest)
    (packed / "manifest.json").write_text(json.dumps(manifest))
    (problem,) = verify_output(packed).problems
    assert problem.startswith("manifest.json: its checksum is ")
    assert problem.endswith(": the manifest was damaged or edited")


def test_the_manifest_of_an_earlier_version_without_a_checksum_is_accepted(packed):
    manifest = json.loads((packed / "manifest.json").read_text())
    del manifest["checksum"]
    (packed / "manifest.json").write_text(json.dumps(manifest, indent=4))
    assert verify_output(packed).problems == []


def test_an_unchanged_output_is_whole(packed):
    report = verify_output(packed)
    assert report.problems == []
    assert report.rows == rows(packed).num_rows
    assert report.shards > 3
    assert json.loads(report.to_json())["ok"] is True


@pytest.mark.parametrize(
    "options",
    [
        {"add_bos": False},
        {"keep_sources": False},
        {"strategy": "wrapped"},
        {"overlong": "truncate"},
        {"overlong": "fill", "stride": 3},
        {"min_length": 10},
        {"drop_longer_than": 20},
        {"add_eos": False, "stride": 5},
    ],
)
def test_outputs_packed_in_any_way_have_no_problems(tmp_path, options):
    path = jsonl(tmp_path / "a.jsonl", texts(50))
    pack(path, tmp_path / "out", partition_size=500, **options)
    report = verify_output(tmp_path / "out")
    assert report.problems == []
    if options.get("keep_sources", True):
        assert verify_inputs(report, [path], "byte").problems == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda r: r[0].update(document_starts=[1]), "do not begin with 0"),
        (lambda r: r[0].update(document_starts=[0, 5, 5]), "do not increase"),
        (
            lambda r: r[0].update(document_starts=[0, 99]),
            "a document starts after the end of the row",
        ),
        (lambda r: r[0].update(document_starts=[]), "has no document_starts"),
        (lambda r: r[0].update(input_ids=[5] * 17), "has 17 tokens, more than 16"),
        (lambda r: r[0].update(input_ids=[]), "has no token"),
        (
            lambda r: r[0].update(input_ids=[-1] * 5, document_starts=[0]),
            "has a negative value in input_ids: -1",
        ),
        (lambda r: r[0].update(input_ids=None), "has nulls"),
        (
            lambda r: r[0].update(document_ids=[]),
            "a different number of document_ids than of document_starts",
        ),
        (lambda r: r.pop(), "rows but the manifest says"),
        (lambda r: r.append(r[0]), "twice"),
        (lambda r: r[0]["document_ids"].__setitem__(0, 12345), "but its ledger counts"),
        (lambda r: r[0]["input_ids"].__setitem__(0, 77), "do not start with the same token"),
    ],
)
def test_wrong_rows_are_reported_even_if_the_checksum_is_right(packed, change, problem):
    rewrite(packed, change)
    report = verify_output(packed)
    assert any(problem in found for found in report.problems), report.problems
    assert any(found.startswith(FIRST) for found in report.problems)


def test_a_flipped_bit_is_reported(packed):
    data = bytearray((packed / FIRST).read_bytes())
    data[100] ^= 1
    (packed / FIRST).write_bytes(data)
    assert "its SHA-256 differs" in verify_output(packed).problems[0]


def test_missing_unlisted_and_temporary_files_are_reported(packed):
    (packed / FIRST).unlink()
    (packed / "data/shard-99999-000.parquet").write_bytes(b"")
    (packed / "data/.shard.1.tmp").write_bytes(b"")
    problems = " ".join(verify_output(packed).problems)
    assert f"{FIRST} is missing" in problems
    assert "data/shard-99999-000.parquet exists but is not listed in the manifest" in problems
    assert "data/.shard.1.tmp exists" in problems


def test_a_shard_that_is_listed_twice_is_reported(packed):
    forge(packed, lambda m: m["shards"].append(m["shards"][0]))
    assert any("an earlier shard holds" in p for p in verify_output(packed).problems)


def test_ledgers_that_do_not_add_up_are_reported(packed):
    forge(packed, lambda m: m["ledger"]["tokens"].update(input=1))
    assert "do not add up" in " ".join(verify_output(packed).problems)
    forge(packed, lambda m: m["shards"][0]["ledger"]["documents"].update(input=99))
    assert "counts 99 input documents but accounts for" in " ".join(verify_output(packed).problems)


def _move(manifest, changes):
    """Change the first shard's ledger and that of all, so that they still add up."""
    for ledger in (manifest["shards"][0]["ledger"], manifest["ledger"]):
        for (what, name), change in changes.items():
            if name in ledger[what]:
                ledger[what][name] += change
            else:
                ledger[what]["dropped"][name] = ledger[what]["dropped"].get(name, 0) + change


def test_tokens_counted_under_another_name_are_reported(packed):
    changes = {("tokens", "emitted"): -1, ("tokens", "overlap"): 1, ("tokens", "input"): -1}
    forge(packed, lambda m: _move(m, changes))
    problems = " ".join(verify_output(packed).problems)
    assert "emitted tokens but its ledger counts" in problems
    assert "overlap tokens but its ledger counts" in problems


def test_documents_and_tokens_that_do_not_exist_are_reported_with_the_inputs(packed, tmp_path):
    changes = {("documents", "empty"): 1, ("documents", "input"): 1}
    changes |= {("tokens", "too_long"): 5, ("tokens", "input"): 5}
    forge(packed, lambda m: _move(m, changes))
    forge(packed, lambda m: m["options"].update(drop_longer_than=1000))
    report = verify_output(packed)
    assert report.ok, "only the inputs show it"
    problems = " ".join(verify_inputs(report, [tmp_path / "a.jsonl"], "byte").problems)
    assert "the inputs have 62 documents, but the ledger counts 63" in problems
    assert (
        "the ledger counts 5 tokens as dropped for the reason too_long, but the inputs give 0"
        in problems
    )


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {("documents", "input"): 1, ("documents", "pending"): 1},
            "counts 1 pending document, but",
        ),
        ({("tokens", "truncated"): 5, ("tokens", "input"): 5}, "counted as truncated"),
        ({("documents", "row_too_short"): 1, ("documents", "input"): 1}, "as row_too_short"),
        ({("tokens", "too_long"): -1, ("tokens", "truncated"): 1}, "counts -1 tokens as too_long"),
        ({("tokens", "empty"): 1, ("tokens", "input"): 1}, "tokens are counted as empty"),
        ({("documents", "nonsense"): 1, ("documents", "input"): 1}, "counted as nonsense"),
    ],
)
def test_counts_that_are_impossible_with_these_options_are_reported(packed, changes, problem):
    forge(packed, lambda m: _move(m, changes))
    assert problem in verify_output(packed).problems[0]


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [("min_length", 12, "tokens, fewer than 12"), ("max_documents_per_row", 1, "more than 1")],
)
def test_rows_that_the_options_do_not_allow_are_reported(packed, option, value, problem):
    forge(packed, lambda m: m["options"].update({option: value}))
    assert any(problem in found for found in verify_output(packed).problems)


def test_labels_are_reported_if_the_manifest_says_there_are_none(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", [{"input_ids": [7, 8], "labels": [-100, 8]}])
    pack(path, tmp_path / "out", None, pretokenized=True, index_only=True)
    forge(tmp_path / "out", lambda m: m["documents"].update(has_labels=False))
    (problem,) = verify_output(tmp_path / "out").problems
    assert "has labels and the manifest says that it has none" in problem


def test_a_memory_mapped_copy_with_other_rows_is_reported(packed):
    dataset = PackedDataset(packed)
    tokens = dataset[0]["input_ids"].tobytes()
    assert verify_output(packed).ok
    path = packed / ".mapped" / "shard-00000-000.arrow"
    data = path.read_bytes()
    assert data.count(tokens) == 1
    path.write_bytes(data.replace(tokens, tokens[:-4] + b"\7\0\0\0"))
    (problem,) = verify_output(packed).problems
    assert "its memory-mapped copy .mapped/shard-00000-000.arrow holds something else" in problem
    path.write_bytes(data[:-8] + bytes(8))
    assert "holds something else" in verify_output(packed).problems[0]
    (packed / ".mapped" / "index.json").unlink()
    assert verify_output(packed).ok, "readers make it again"


def test_a_fragment_shorter_than_the_stride_is_not_a_repetition(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", [{"input_ids": [5] * n} for n in (15, 40, 14, 40, 13, 40)])
    for seed in range(4):
        out = tmp_path / f"out{seed}"
        options = {"strategy": "wrapped", "stride": 3, "shuffle": True, "seed": seed}
        pack(path, out, None, pretokenized=True, **options)
        assert verify_output(out).problems == []


def test_a_changed_list_of_bad_records_is_reported(packed):
    (packed / "bad_records.jsonl").write_text("")
    assert (
        "bad_records.jsonl is missing, or its bytes have changed"
        in verify_output(packed).problems[-1]
    )


@pytest.mark.parametrize(
    "name",
    [
        "../data/shard-00000-000.parquet",
        "/etc/passwd",
        "data/shard-00000-000.parquet/../x",
        7,
        None,
        "a",
    ],
)
def test_52_a_manifest_may_not_list_files_outside_its_folder(packed, name):
    forge(packed, lambda m: m["shards"][0].update(file=name))
    with pytest.raises(CorruptFile, match="is not the name of a shard"):
        verify_output(packed)


def test_52_a_shard_may_not_be_a_link(packed, tmp_path):
    (packed / FIRST).rename(tmp_path / "elsewhere")
    (packed / FIRST).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CorruptFile, match="is a link"):
        verify_output(packed)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is not JSON"),
        (b"\x80\x04.", "is not JSON"),
        (b"[]", "lacks format"),
        (b"{}", "lacks format, options"),
        (b"[" * 100_000, "is not JSON"),
    ],
)
def test_a_file_that_is_not_a_manifest_is_a_corrupt_file(packed, data, message):
    (packed / "manifest.json").write_bytes(data)
    with pytest.raises(CorruptFile, match=message):
        verify_output(packed)


def test_a_newer_manifest_asks_for_an_upgrade_and_a_broken_one_is_called_damaged(packed):
    forge(packed, lambda m: m["shards"][0].pop("ledger"))
    with pytest.raises(CorruptFile, match="is damaged: KeyError 'ledger'"):
        verify_output(packed)
    forge(packed, lambda m: m["format"].update(version=4))
    with pytest.raises(CorruptFile, match="upgrade"):
        verify_output(packed)


def test_an_unfinished_output_is_an_error(tmp_path):
    with pytest.raises(CorruptFile, match=r"has no manifest.json: it is unfinished"):
        verify_output(tmp_path)


def test_inputs_are_found_token_by_token(packed, tmp_path):
    report = verify_inputs(verify_output(packed), [tmp_path / "a.jsonl"], "byte")
    assert report.problems == []
    assert report.compared == report.documents


def test_inputs_of_every_kind_are_compared(tmp_path):
    values = texts(20)
    folder = tmp_path / "in"
    folder.mkdir()
    path = jsonl(folder / "a.jsonl", values)
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(path.read_bytes()))
    with pa.output_stream(str(folder / "c.jsonl.zst"), compression="zstd") as stream:
        stream.write(path.read_bytes())
    pq.write_table(pa.table({"text": values}), folder / "d.parquet")
    for name, new in (("e", pa.ipc.new_file), ("f", pa.ipc.new_stream)):
        with new(folder / f"{name}.arrow", pa.schema({"text": pa.string()})) as writer:
            writer.write_table(pa.table({"text": values}))
    (folder / "g.txt").write_text("text")
    pack(folder, tmp_path / "out", partition_size=500)
    report = verify_inputs(verify_output(tmp_path / "out"), [folder], "byte")
    assert report.problems == []
    assert report.compared == 6 * sum(map(bool, values)) + 1


def test_pretokenized_inputs_are_compared_without_a_tokenizer(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", [{"input_ids": list(range(5, 30))}, {"input_ids": []}])
    pack(path, tmp_path / "out", None, pretokenized=True)
    assert verify_inputs(verify_output(tmp_path / "out"), [path], None).problems == []


def test_a_token_that_differs_from_the_input_is_reported(packed, tmp_path):
    rewrite(packed, lambda r: r[0]["input_ids"].__setitem__(1, 77))
    report = verify_output(packed)
    assert report.ok, "only the inputs show it"
    report = verify_inputs(report, [tmp_path / "a.jsonl"], "byte")
    assert "differ from the input" in report.problems[0]


def test_a_prefix_that_is_not_the_tokenizers_bos_is_reported(packed, tmp_path):
    def reopen(records):
        for row in records:
            for start in row["document_starts"]:
                row["input_ids"][start] = 7

    for shard in sorted((packed / "data").iterdir()):
        rewrite(packed, reopen, f"data/{shard.name}")
    report = verify_output(packed)
    assert report.ok, "only the inputs show it"
    (problem,) = verify_inputs(report, [tmp_path / "a.jsonl"], "byte").problems
    assert problem == "fragments start with {7}, but BOS is 1"


@pytest.mark.parametrize("index_only", [False, True])
def test_labels_that_differ_from_the_input_are_reported(tmp_path, index_only):
    records = [{"input_ids": [7, 8, 9], "labels": [-100, 8, 9]}, {"input_ids": [4], "labels": [4]}]
    path, out = jsonl(tmp_path / "a.jsonl", records), tmp_path / "out"
    pack(path, out, None, pretokenized=True, index_only=index_only)
    assert verify_inputs(verify_output(out), [path], None).ok
    rewrite(out, lambda rows: rows[0]["labels"].__setitem__(1, 3))
    report = verify_output(out)
    assert report.ok, "only the inputs show it"
    (problem,) = verify_inputs(report, [path], None).problems
    assert problem == "record 0 of input 0: labels 0 to 3 differ from the input"


def test_a_bad_text_in_a_table_does_not_affect_the_others(tmp_path):
    raw = pa.array([b"fine", b"\xff", b"good"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"text": raw}), tmp_path / "a.parquet")
    pack(tmp_path / "a.parquet", tmp_path / "out", max_bad_records=1)
    report = verify_inputs(verify_output(tmp_path / "out"), [tmp_path / "a.parquet"], "byte")
    assert (report.problems, report.compared) == ([], 2)


def test_empty_documents_counted_under_another_name_are_reported_with_the_inputs(tmp_path):
    path, out = jsonl(tmp_path / "a.jsonl", ["", "abc"]), tmp_path / "out"
    pack(path, out, drop_longer_than=1000)
    forge(out, lambda m: _move(m, {("documents", "empty"): -1, ("documents", "too_long"): 1}))
    report = verify_output(out)
    assert report.ok, "only the inputs show it"
    assert verify_inputs(report, [path], "byte").problems == [
        "the ledger counts 0 documents as dropped for the reason empty, but the inputs give 1",
        "the ledger counts 1 document as dropped for the reason too_long, but the inputs give 0",
    ]


def test_inputs_that_changed_or_are_missing_are_refused(packed, tmp_path):
    report = verify_output(packed)
    jsonl(tmp_path / "b.jsonl", ["a"])
    with pytest.raises(InvalidOption, match=r"a.jsonl was packed but is not among the given"):
        verify_inputs(report, [tmp_path / "b.jsonl"], "byte")
    with pytest.raises(InvalidOption, match="give the tokenizer that packed"):
        verify_inputs(report, [tmp_path / "a.jsonl"], None)
    jsonl(tmp_path / "a.jsonl", ["a"])
    with pytest.raises(InvalidOption, match="bytes but had"):
        verify_inputs(report, [tmp_path / "a.jsonl"], "byte")


def test_the_command_has_an_exit_code_for_every_result(packed, tmp_path):
    whole = run("verify", packed, "--inputs", tmp_path / "a.jsonl", "--tokenizer", "byte")
    assert (whole.returncode, whole.stdout.split(":")[0]) == (0, "whole"), whole.stderr
    assert "compared with the inputs" in whole.stdout
    (packed / FIRST).write_bytes(b"")
    wrong = run("verify", packed, "--json")
    assert wrong.returncode == 1
    assert json.loads(wrong.stdout)["ok"] is False
    assert run("verify", tmp_path / "nowhere").returncode == 2


def test_inputs_of_the_same_name_in_several_folders_are_distinguished(tmp_path):
    names = ["a/x.jsonl", "b/a/x.jsonl", "x.jsonl", "z/x.jsonl"]
    for length, name in enumerate(names, 1):
        (tmp_path / "corpus" / name).parent.mkdir(parents=True, exist_ok=True)
        jsonl(tmp_path / "corpus" / name, ["y" * length])
    out = tmp_path / "out"
    pack(tmp_path / "corpus", out)
    for given in (tmp_path / "corpus", f"{tmp_path}/corpus/**/*.jsonl", f"{tmp_path}/corpus/**"):
        assert verify_inputs(verify_output(out), [given], "byte").problems == []


def test_a_file_name_with_brackets_is_not_a_pattern(tmp_path):
    path = jsonl(tmp_path / "a[1].jsonl", ["abc"])
    pack(path, tmp_path / "out")
    assert verify_inputs(verify_output(tmp_path / "out"), [str(path)], "byte").problems == []


def test_the_remains_of_a_stopped_writer_are_reported_with_the_remedy(packed):
    (packed / ".quire").mkdir()
    (problem,) = verify_output(packed).problems
    assert problem.startswith(
        ".quire exists: a writer is still running or was stopped; run its comm"
    )
