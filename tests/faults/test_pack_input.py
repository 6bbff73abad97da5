"""Faults of inputs, by their number in the list of faults, and what must happen."""

from __future__ import annotations

import gzip
import json
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from quire.errors import (
    CorruptFile,
    InvalidDocument,
    InvalidOption,
    OversizedDocument,
    QuireError,
    SourceChanged,
)
from tests.corpus.corpora import contents, hashes, jsonl, pack, rows, texts

GOOD = b'{"text": "fine"}\n'


def ids(text: str) -> list[int]:
    return [byte + 3 for byte in text.encode()] + [2]


def quarantined(tmp_path, data: bytes, **options) -> list[dict]:
    """What is listed as bad when such records are allowed; otherwise they are an error."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(data)
    with pytest.raises(InvalidDocument, match=r"a\.jsonl: record \d+ .*max_bad_records"):
        pack(path, tmp_path / "refused", **options)
    assert not list((tmp_path / "refused").glob("*.json"))
    result = pack(path, tmp_path / "out", max_bad_records=9, **options)
    listed = (tmp_path / "out" / "bad_records.jsonl").read_text().splitlines()
    assert result.ledger.check().documents.dropped["bad_record"] == len(listed)
    return [json.loads(line) for line in listed]


def only_bad(tmp_path, line: bytes, **options) -> dict:
    """The entry listed for a line between two good ones, which are packed."""
    (bad,) = quarantined(tmp_path, GOOD + line + GOOD, **options)
    assert contents(tmp_path / "out") == {0: ids("fine"), 2: ids("fine")}
    assert (bad["file"], bad["record"], bad["byte_offset"]) == ("a.jsonl", 1, len(GOOD))
    return bad


def test_01_a_truncated_last_line_is_quarantined_with_its_byte_offset(tmp_path):
    (bad,) = quarantined(tmp_path, GOOD + b'{"text": "secret')
    assert (bad["record"], bad["byte_offset"]) == (1, len(GOOD))
    assert "the file may be cut off" in bad["reason"]
    assert "secret" not in json.dumps(bad)


def test_01_a_last_line_without_a_newline_is_accepted(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(GOOD + GOOD.strip())
    pack(tmp_path / "a.jsonl", tmp_path / "out")
    assert len(contents(tmp_path / "out")) == 2


def test_02_bad_json_in_the_middle_is_quarantined(tmp_path):
    assert "is not JSON" in only_bad(tmp_path, b'{"text": "secret"]\n')["reason"]


def test_03_invalid_utf8_is_quarantined_and_never_replaced(tmp_path):
    assert "is not UTF-8" in only_bad(tmp_path, b'{"text": "\xff\xfe"}\n')["reason"]


def test_03_invalid_utf8_in_text_files_and_tables_is_quarantined(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"ok\xff")
    raw = pa.array([b"fine", b"\xff"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"text": raw}), tmp_path / "b.parquet")
    pack(tmp_path, tmp_path.parent / "out3", max_bad_records=2)
    listed = (tmp_path.parent / "out3" / "bad_records.jsonl").read_text().splitlines()
    places = [(b["file"], b["record"], b["byte_offset"]) for b in map(json.loads, listed)]
    assert places == [("a.txt", 0, 2), ("b.parquet", 1, None)]
    assert contents(tmp_path.parent / "out3") == {1 << 40: ids("fine")}


def test_04_bom_crlf_line_separators_and_nul_keep_their_content(tmp_path):
    data = "\ufeff" + '{"text": "a\u2028b"}\r\n\n \n{"text": "c\\u0000\\r\\nd"}\n'
    (tmp_path / "a.jsonl").write_bytes(data.encode())
    pack(tmp_path / "a.jsonl", tmp_path / "out", max_length=32)
    assert contents(tmp_path / "out") == {0: ids("a\u2028b"), 3: ids("c\x00\r\nd")}


def test_05_half_a_surrogate_pair_is_quarantined(tmp_path):
    assert "surrogate" in only_bad(tmp_path, b'{"text": "\\udc00"}\n')["reason"]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b'{"text": null}\n', "has null under 'text'"),
        (b'{"text": 7}\n', "has int under 'text'"),
        (b'{"texts": ""}\n', "has no 'text'"),
        (b'["text"]\n', "is a JSON array"),
    ],
)
def test_06_a_null_text_is_quarantined_and_never_becomes_the_word_none(tmp_path, value, reason):
    assert reason in only_bad(tmp_path, value)["reason"]


def test_06_a_null_in_a_table_is_quarantined(tmp_path):
    pq.write_table(pa.table({"text": ["a", None]}), tmp_path / "a.parquet")
    result = pack(tmp_path / "a.parquet", tmp_path / "out", max_bad_records=1)
    assert contents(tmp_path / "out") == {0: ids("a")}
    assert result.ledger.documents.dropped == {"bad_record": 1}


def test_07_a_document_without_a_token_is_counted_as_empty(tmp_path):
    result = pack(jsonl(tmp_path / "a.jsonl", ["", "a"]), tmp_path / "out")
    assert result.ledger.documents.dropped == {"empty": 1}


def test_08_only_empty_documents_give_a_valid_empty_output_and_a_warning(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", ["", ""])
    with pytest.warns(UserWarning, match="has no rows; documents: 2 read, 2 dropped as empty"):
        result = pack(path, tmp_path / "out")
    assert (result.num_rows, result.utilization) == (0, 0.0)
    assert rows(tmp_path / "out").column_names[:2] == ["input_ids", "document_starts"]


def test_09_a_document_of_one_token_is_kept(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", ["a"])
    pack(path, tmp_path / "out", add_bos=False, add_eos=False)
    assert rows(tmp_path / "out")["input_ids"].to_pylist() == [[100]]


@pytest.mark.parametrize("length", [15, 16, 17, 32, 33, 48])
@pytest.mark.parametrize("overlong", ["split", "truncate", "drop", "error", "fill"])
def test_10_documents_near_the_row_length_follow_overlong_exactly(tmp_path, length, overlong):
    path = jsonl(tmp_path / "a.jsonl", ["x" * length])
    options = {"add_bos": False, "add_eos": False, "overlong": overlong, "max_length": 16}
    if overlong == "error" and length > 16:
        with pytest.raises(OversizedDocument):
            pack(path, tmp_path / "out", **options)
        return
    if overlong == "drop" and length > 16:
        with pytest.warns(UserWarning, match="has no rows"):
            result = pack(path, tmp_path / "out", **options)
    else:
        result = pack(path, tmp_path / "out", **options)
    kept = {"truncate": min(length, 16), "drop": length if length <= 16 else 0}
    assert result.ledger.tokens.emitted == kept.get(overlong, length)
    assert result.num_rows == -(-result.ledger.tokens.emitted // 16)


def test_11_a_document_of_many_rows_is_split_without_loss(tmp_path):
    text = "".join(random.Random(0).choices("abcdef ", k=300_000))
    pack(jsonl(tmp_path / "a.jsonl", [text, "b"]), tmp_path / "out", max_length=4096)
    assert contents(tmp_path / "out") == {0: ids(text), 1: ids("b")}


def test_12_a_record_over_the_limit_is_quarantined(tmp_path):
    reason = only_bad(tmp_path, b'{"text": "%s"}\n' % (b"x" * 99), max_record_bytes=50)["reason"]
    assert reason == "has 112 bytes, over 50"


def test_12_a_text_file_or_table_value_over_the_limit_is_quarantined(tmp_path):
    (tmp_path / "a.txt").write_text("x" * 51)
    pq.write_table(pa.table({"text": ["é" * 25, "é" * 26]}), tmp_path / "b.parquet")
    pack(tmp_path, tmp_path.parent / "out12", max_record_bytes=50, max_bad_records=2)
    assert contents(tmp_path.parent / "out12") == {1 << 40: ids("é" * 25)}


def test_13_deep_nesting_is_quarantined(tmp_path):
    line = b'{"text": "a", "x": ' + b"[" * 10_000 + b"]" * 10_000 + b"}\n"
    assert only_bad(tmp_path, line)["reason"] == "is nested too deep"


@pytest.mark.parametrize(
    "line", [b'{"text": "a", "text": "b"}\n', b'{"text": "a", "x": Infinity}\n']
)
def test_14_duplicate_keys_and_infinity_are_quarantined(tmp_path, line):
    only_bad(tmp_path, line)


def test_14_an_integer_of_endless_digits_is_quarantined(tmp_path):
    line = b'{"text": "a", "n": ' + b"1" * 6000 + b"}\n"
    assert "more digits" in only_bad(tmp_path, line)["reason"]


@pytest.mark.parametrize("token", [-1, 259, 2**31, 2**40])
def test_15_a_token_outside_the_vocabulary_is_an_error(tmp_path, token):
    path = jsonl(tmp_path / "a.jsonl", [{"input_ids": [5]}, {"input_ids": [5, token]}])
    with pytest.raises(InvalidDocument, match=rf"a\.jsonl.*record 1 has token id {token}"):
        pack(path, tmp_path / "out", "byte", pretokenized=True, max_bad_records=9)
    if token >= 2**31 or token < 0:
        with pytest.raises(InvalidDocument, match="token id"):
            pack(path, tmp_path / "other", None, pretokenized=True)


def test_16_rows_that_are_packed_already_are_refused(tmp_path):
    record = {"input_ids": [5, 6], "document_starts": [0, 1]}
    path = jsonl(tmp_path / "a.jsonl", [record])
    with pytest.raises(InvalidOption, match="is packed already"):
        pack(path, tmp_path / "out", None, pretokenized=True)


def test_17_labels_of_another_length_are_quarantined(tmp_path):
    good = b'{"input_ids": [5, 6], "labels": [5, 6]}\n'
    data = (
        good + b'{"input_ids": [7, 8], "labels": [7]}\n' + b'{"input_ids": [7], "labels": null}\n'
    )
    bad = quarantined(tmp_path, data + good, pretokenized=True, tokenizer=None)
    assert [(b["record"], b["reason"]) for b in bad] == [
        (1, "has 2 input_ids but 1 labels"),
        (2, "has NoneType under 'labels', where a list is needed".replace("NoneType", "null")),
    ]
    assert contents(tmp_path / "out") == {0: [5, 6], 3: [5, 6]}


def test_18_boundaries_do_not_come_from_tokens(tmp_path):
    records = [{"input_ids": [2, 2, 7]}, {"input_ids": [0, 2]}, {"input_ids": [1]}]
    pack(jsonl(tmp_path / "a.jsonl", records), tmp_path / "out", None, pretokenized=True)
    (row,) = rows(tmp_path / "out").to_pylist()
    assert row["document_starts"] == [0, 3, 5]


@pytest.mark.parametrize("where", ["footer", "page", "bit", "cut", "nothing"])
def test_20_a_corrupt_parquet_file_is_an_error(tmp_path, where):
    path = tmp_path / "a.parquet"
    table = pa.table({"text": [random.Random(i).randbytes(40).hex() for i in range(200)]})
    pq.write_table(table, path, compression="none", use_dictionary=False, write_page_checksum=True)
    data = bytearray(path.read_bytes())
    if where == "footer":
        data[-200:-8] = bytes(192)
    elif where == "page":
        data[4:40] = b"\xff" * 36
    elif where == "bit":
        data[5010] ^= 1  # in a text, which no length tells of
    else:
        data = data[: len(data) // 2] if where == "cut" else bytearray()
    path.write_bytes(data)
    with pytest.raises(CorruptFile, match=r"a\.parquet cannot be read as parquet"):
        pack(path, tmp_path / "out")


def test_20_a_truncated_arrow_or_gz_file_is_an_error(tmp_path):
    table = pa.table({"text": texts(50)})
    with pa.ipc.new_stream(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(GOOD * 50))
    with pa.output_stream(str(tmp_path / "c.jsonl.zst"), compression="zstd") as stream:
        stream.write(b"".join(json.dumps({"text": t}).encode() + b"\n" for t in texts(50)))
    for path in sorted(tmp_path.iterdir()):
        path.write_bytes(path.read_bytes()[:-30])
        with pytest.raises(CorruptFile, match=path.name):
            pack(path, tmp_path.parent / f"out-{path.name}", max_bad_records=99)


def test_21_sliced_chunked_and_null_bearing_tables_are_packed_correctly(tmp_path):
    lists = pa.array([[1], [5, 6], None, [7], [], [8, 9, 10]])
    after_null = pa.ListArray.from_arrays(
        pa.array([0, 2, 4, 5]), pa.array([5, 6, 98, 99, 7]), mask=pa.array([False, True, False])
    )
    chunks = pa.chunked_array([lists[1:5], after_null, lists[5:]])
    table = pa.table({"input_ids": chunks})
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table)
    pack(tmp_path / "a.arrow", tmp_path / "out", None, pretokenized=True, max_bad_records=2)
    found = contents(tmp_path / "out")
    assert found == {0: [5, 6], 2: [7], 4: [5, 6], 6: [7], 7: [8, 9, 10]}


def test_21_lists_large_lists_and_fixed_size_lists_pack_as_one_corpus(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    jsonl(folder / "a.jsonl", [{"input_ids": [1, 2]}])
    kinds = [pa.large_list(pa.int64()), pa.list_(pa.int64(), 2), pa.list_view(pa.int64())]
    for number, kind in enumerate(kinds):
        table = pa.table({"input_ids": pa.array([[9, 9], [3, number], None], kind)}).slice(1)
        with pa.ipc.new_file(folder / f"b{number}.arrow", table.schema) as writer:
            writer.write_table(table)
    pack(folder, tmp_path / "out", None, pretokenized=True, max_bad_records=3)
    first = 1 << 40
    assert contents(tmp_path / "out") == {
        0: [2],  # the helper takes a leading 1 for BOS
        **{first * (1 + number): [3, number] for number in range(3)},
    }


def test_22_two_columns_of_one_name_are_an_error(tmp_path):
    table = pa.table([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(InvalidDocument, match=r"a\.arrow has 2 columns 'text'"):
        pack(tmp_path / "a.arrow", tmp_path / "out")


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"text": [[1]]}, "holds list<.*> but text is needed"),
        ({"body": ["a"]}, "unknown column of .*b.parquet 'text'"),
    ],
)
def test_22_tables_that_disagree_about_the_text_are_an_error(tmp_path, second, message):
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table(second), tmp_path / "b.parquet")
    with pytest.raises(QuireError, match=message):
        pack(tmp_path, tmp_path.parent / "out22")


def test_22_tables_that_disagree_about_the_tokens_are_an_error(tmp_path):
    for name, kind in (("a", pa.int32()), ("b", pa.int64())):
        column = pa.array([[5]], pa.list_(kind))
        pq.write_table(pa.table({"input_ids": column}), tmp_path / f"{name}.parquet")
    with pytest.raises(InvalidDocument, match=r"b\.parquet: column 'input_ids' holds int64 but in"):
        pack(tmp_path, tmp_path.parent / "out22b", None, pretokenized=True)


def test_23_a_source_that_changes_after_planning_is_an_error(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", texts(40))

    def grow(start):
        jsonl(path, texts(41))

    with pytest.raises(SourceChanged, match=r"a\.jsonl changed during the run"):
        pack(path, tmp_path / "out", partition_size=300, on_start=grow)
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_23_a_source_that_changes_while_it_is_read_is_an_error(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", texts(40))

    def grow(progress):
        with path.open("a") as file:
            file.write("\n")

    with pytest.raises(SourceChanged, match=r"a\.jsonl changed during the run"):
        pack(path, tmp_path / "out", on_progress=grow)
    assert not list((tmp_path / "out").glob("data/*.parquet"))


def test_24_the_same_file_twice_is_an_error(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", ["a"])
    (tmp_path / "b.jsonl").symlink_to(path)
    for named in ([path, path], [tmp_path / "*.jsonl"]):
        with pytest.raises(InvalidOption, match="are the same file"):
            pack(named, tmp_path / "out")


def test_25_empty_files_are_accepted(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"")
    (tmp_path / "b.txt").write_bytes(b"")
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(b""))
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), tmp_path / "d.parquet")
    jsonl(tmp_path / "e.jsonl", ["a"])
    pack(tmp_path, tmp_path.parent / "out25")
    assert contents(tmp_path.parent / "out25") == {4 << 40: ids("a")}


def test_25_an_empty_first_file_does_not_hide_labels(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(b"")
    jsonl(folder / "b.jsonl", [{"input_ids": [7, 8], "labels": [-100, 8]}])
    pack(folder, tmp_path / "out", None, pretokenized=True)
    assert rows(tmp_path / "out")["labels"].to_pylist() == [[-100, 8]]


@pytest.mark.parametrize("max_length", [2**k + d for k in (3, 6, 13) for d in (-1, 0, 1)])
def test_26_row_lengths_near_a_power_of_two_pack_correctly(tmp_path, max_length):
    lengths = np.random.default_rng(0).integers(1, 3 * max_length, 40)
    path = jsonl(tmp_path / "a.jsonl", ["x" * int(n) for n in lengths])
    result = pack(path, tmp_path / "out", max_length=max_length, add_bos=False, overlong="fill")
    assert result.ledger.tokens.emitted == int(lengths.sum())
    assert result.num_tokens == int(lengths.sum()) + 40
    assert result.num_rows <= -(-result.num_tokens // max_length) + 1


def test_50_pickles_are_refused_as_inputs(tmp_path):
    (tmp_path / "a.pkl").write_bytes(b"\x80\x04.")
    with pytest.raises(InvalidOption, match=r"a\.pkl has a suffix of no known format"):
        pack(tmp_path / "a.pkl", tmp_path / "out")


@pytest.mark.parametrize("kind", ["gz", "zst", "parquet"])
def test_53_a_decompression_bomb_is_an_error(tmp_path, kind, monkeypatch):
    monkeypatch.setattr("quire.formats.compression.ALWAYS_ALLOWED", 1 << 20)
    line = b'{"text": "' + b"a" * 1000 + b'"}\n'
    path = tmp_path / f"a.jsonl.{kind}"
    if kind == "gz":
        path.write_bytes(gzip.compress(line * 20_000))
    elif kind == "zst":
        with pa.output_stream(str(path), compression="zstd") as stream:
            stream.write(line * 20_000)
    else:
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table({"text": ["a" * 10_000] * 2_000}), path)
    with pytest.raises(CorruptFile, match="over 250 times as many"):
        pack(path, tmp_path / "out", partition_size="1M", max_length=4096)


def test_a_budget_counts_bad_records_of_all_partitions(tmp_path):
    (tmp_path / "a.jsonl").write_bytes((GOOD * 5 + b"{\n") * 6)
    with pytest.raises(InvalidDocument, match="that is bad record 6 and max_bad_records is 5"):
        pack(tmp_path / "a.jsonl", tmp_path / "out", partition_size=100, max_bad_records=5)
    result = pack(
        tmp_path / "a.jsonl", tmp_path / "out", partition_size=100, max_bad_records=6, resume=True
    )
    listed = (tmp_path / "out" / "bad_records.jsonl").read_text().splitlines()
    assert [json.loads(line)["record"] for line in listed] == [5, 11, 17, 23, 29, 35]
    assert result.manifest["bad_records"]["count"] == 6
    pack(tmp_path / "a.jsonl", tmp_path / "once", partition_size=100, max_bad_records=99)
    assert hashes(tmp_path / "out") == hashes(tmp_path / "once")
