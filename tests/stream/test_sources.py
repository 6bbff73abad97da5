"""Sources: every record in order, from any cursor, and bad ones named."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import IterableDataset, concatenate_datasets, interleave_datasets
from datasets.iterable_dataset import _BaseExamplesIterable

from quire.corpus.inputs import find_inputs, read_span
from quire.corpus.options import CorpusOptions
from quire.errors import CorruptFile, InvalidDocument, InvalidOption, InvalidState, SourceChanged
from quire.formats.format import Span
from quire.stream import BadRecord, open_stream
from quire.stream.options import StreamSource
from quire.stream.reader import ShardReader, Share
from quire.stream.sources import open_source, read_records
from tests.stream.inputs import (
    ListSource,
    Numbers,
    config,
    options_of,
    shards_of,
    take,
    unique_documents,
    write_jsonl,
    write_parquet,
)

TEXTS = ["one", "two\nlines\r", "drei \u2028 \x00", "vier", "", "six"]


def compress(data: bytes, suffix: str) -> bytes:
    if suffix == ".gz":
        return gzip.compress(data[:7]) + gzip.compress(data[7:])  # two members, one file
    if suffix == ".zst":
        return pa.Codec("zstd").compress(data, asbytes=True)
    return data


def files(*patterns, **options):
    return open_source(StreamSource(backend="files", files=tuple(map(str, patterns)), **options))


def read_all(shard):
    records = []
    while True:
        try:
            records += shard.read(3) if isinstance(shard, ShardReader) else [shard.next()]
        except StopIteration:
            return records


def read_from_everywhere(shards, number=0):
    """All records, after the same rest was read from the cursor after each of them."""
    shard = shards.open(number, None)
    cursors, records = [shard.cursor()], []
    while True:
        try:
            records.append(shard.next())
        except StopIteration:
            break
        cursors.append(json.loads(json.dumps(shard.cursor())))
    for place, cursor in enumerate(cursors):
        again = shards.open(number, cursor)
        assert again.cursor() == cursor  # before anything was read
        assert read_all(again) == records[place:]
    return records


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_jsonl_is_read_from_any_line(tmp_path, suffix):
    """Fault 4: BOM, CR, U+2028 and NUL are kept unchanged, or are not part of the text."""
    lines = [json.dumps({"text": text}) for text in TEXTS]
    lines.insert(2, "  ")  # a blank line is no record
    data = "\n".join(lines).encode()  # the last line has no end
    file = tmp_path / f"a.jsonl{suffix}"
    file.write_bytes(compress(b"\xef\xbb\xbf" + data, suffix))
    assert read_from_everywhere(files(file)) == TEXTS


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_a_text_file_is_one_unchanged_document(tmp_path, suffix):
    file = tmp_path / f"a.txt{suffix}"
    file.write_bytes(compress("a\r\nb\u2028".encode(), suffix))
    assert read_from_everywhere(files(file)) == ["a\r\nb\u2028"]


def test_parquet_is_read_from_any_row(tmp_path):
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": list(range(6)), "text": TEXTS}), file, row_group_size=4)
    assert read_from_everywhere(files(file)) == TEXTS


@pytest.mark.parametrize("write", [write_jsonl, write_parquet])
def test_large_shards_are_read_from_any_cursor(tmp_path, write):
    documents = [[number] for number in range(1300)]
    pattern = (
        write(tmp_path, [documents])
        if write is write_jsonl
        else write(tmp_path, [documents], row_group_size=700)
    )
    shards = files(pattern)
    whole = read_all(shards.open(0, None))
    assert whole == [str(number) for number in range(1300)]
    shard = shards.open(0, None)
    for place in range(1300):
        if place % 97 == 0:
            assert read_all(shards.open(0, shard.cursor())) == whole[place:]
        shard.next()


@pytest.mark.parametrize("most", [1, 2, 5, 100])
def test_records_read_at_once_are_those_read_one_by_one_and_so_is_the_cursor(tmp_path, most):
    texts = [str(number) * number for number in range(40)]
    lines = [json.dumps({"text": text}) if text else "broken" for text in texts]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    shards = files(tmp_path / "a.jsonl")
    one_by_one, together = shards.open(0, None), shards.open(0, None)
    read = []
    while len(read) < len(texts):
        part = read_records(together, most)
        assert 0 < len(part) <= most
        assert part == [one_by_one.next() for _ in part]
        assert together.cursor() == one_by_one.cursor()
        read += part
    with pytest.raises(StopIteration):
        read_records(together, most)


def test_a_dataset_of_datasets_is_read_from_any_record():
    dataset = IterableDataset.from_generator(lambda: ({"text": text} for text in TEXTS))
    assert read_from_everywhere(open_source(StreamSource(), dataset)) == TEXTS


def test_local_text_is_one_document():
    shards = open_source(StreamSource(backend="local_text", local_text="abc"))
    assert read_from_everywhere(shards) == ["abc"]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        pytest.param(b'{"text": "a', "is not JSON", id="fault 2"),
        pytest.param(b'{"text": "a"} x', "is not JSON", id="fault 2, more behind it"),
        pytest.param(b'{"text": "\xff"}', "is not UTF-8", id="fault 3"),
        pytest.param(b'{"text": "\\ud800"}', "half a surrogate pair", id="fault 5"),
        pytest.param(
            b'{"text": null}', "has null under 'text', where a string", id="fault 6, null"
        ),
        pytest.param(b'{"text": 7}', "has int under 'text', where a string", id="fault 6, number"),
        pytest.param(b'{"txt": "a"}', "has no 'text' (it has 'txt')", id="fault 6, missing"),
        pytest.param(b"[1]", "not an object", id="fault 6, no object"),
        pytest.param(b"[" * 100_000, "nested too deep", id="fault 13"),
        pytest.param(b'{"text": "a", "text": "b"}', "a key twice", id="fault 14, key twice"),
        pytest.param(b'{"text": "a", "n": Infinity}', "Infinity", id="fault 14, Infinity"),
        pytest.param(b'{"text": "' + b"a" * 200 + b'"}', "has 213 bytes, over 150", id="fault 12"),
    ],
)
def test_a_bad_line_is_named_with_its_byte_and_the_next_one_is_read(
    tmp_path, line, problem, monkeypatch
):
    if "150" in problem:
        monkeypatch.setattr("quire.stream.reading.MAX_RECORD_BYTES", 150)
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'{"text": "x"}\n' + line + b'\n{"text": "y"}\n')
    first, bad, last = read_all(files(file).open(0, None))
    assert (first, last) == ("x", "y")
    assert isinstance(bad, BadRecord)
    assert "a.jsonl: line 1 (byte 14)" in bad.problem
    assert problem in bad.problem


def test_a_last_line_that_was_cut_off_is_named_with_its_byte(tmp_path):
    """Fault 1."""
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'{"text": "x"}\n{"text": "y')
    first, bad = read_all(files(file).open(0, None))
    assert first == "x"
    assert bad.problem.startswith("a.jsonl: line 1 (byte 14) is not JSON")
    assert "the file may be cut off" in bad.problem


def test_streams_and_corpora_read_every_format_with_the_same_reader(tmp_path):
    """Faults 1 to 6, 12 to 14: records and their problems are decided in one place."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_text('{"text": "x"}\n\n{\n{"text": "y"}\n')
    (folder / "b.txt").write_text("z")
    pq.write_table(pa.table({"text": ["p", None]}), folder / "c.parquet")
    found = find_inputs([folder])
    options = CorpusOptions(max_length=8)
    batches = [batch for file in found for batch in read_span(file, Span(), options, {})]
    shards = files(folder)
    records = [record for number in range(3) for record in read_all(shards.open(number, None))]
    texts = [record for record in records if isinstance(record, str)]
    problems = [record.problem for record in records if isinstance(record, BadRecord)]
    assert texts == [text for batch in batches for text in batch.values] == ["x", "y", "z", "p"]
    reasons = [bad.reason for batch in batches for bad in batch.bad]
    assert len(problems) == 2
    assert all(map(str.endswith, problems, reasons))


def bad_stream(tmp_path, budget, **options):
    file = tmp_path / "a.jsonl"
    lines = ['{"text": "10 11"}', "{", '{"text": ""}', "{}", '{"text": "12"}']
    file.write_text("\n".join(lines))
    data = {"backend": "files", "files": [str(file)], "shuffle": False, "repeat": False}
    plain = config(batch_size=1, **data, max_bad_records=budget, **options)
    return open_stream(plain, tokenizer=Numbers())


def test_a_bad_record_is_an_error_by_default_and_stays_one(tmp_path):
    with bad_stream(tmp_path, 0) as stream:
        for _ in range(2):
            with pytest.raises(InvalidDocument, match=r"a.jsonl: line 1 .*max_bad_records is 0"):
                next(stream)
        assert stream.ledger.check().documents.dropped["bad_record"] == 0


def test_bad_records_within_the_limit_are_skipped_and_counted(tmp_path):
    for workers in (0, 1):
        with bad_stream(tmp_path, 2, num_workers=workers) as stream:
            (batch,) = take(stream)
            ledger = stream.ledger.check()
        assert batch.input_ids[0, 0].tolist() == [1, 10, 11, 2, 1, 12, 2, 0]
        assert ledger.documents.dropped == {"bad_record": 2, "empty": 1}
        assert ledger.documents.input == 5


def test_a_state_keeps_the_number_of_skipped_bad_records(tmp_path):
    with bad_stream(tmp_path, 2, last_batch="pad") as stream:
        take(stream)
        state = stream.get_state()
    with bad_stream(tmp_path, 2) as stream:
        stream.set_state(state)
        assert stream.ledger.documents.dropped["bad_record"] == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "files"}, "data.files is empty"),
        ({"backend": "files", "files": ["none/*.jsonl"]}, "data.files: no file matches"),
        ({"backend": "files", "files": ["[ab]" * 99]}, "data.files: no file matches"),
        ({"backend": "files", "files": ["a\0b"]}, "data.files: there is no file"),
        ({"backend": "local_text"}, "data.local_text is null"),
        ({}, "data.hf_dataset is null"),
    ],
)
def test_a_source_that_is_not_named_is_refused(options, message):
    with pytest.raises(InvalidOption, match=message):
        open_stream(config(**options), tokenizer=Numbers())


@pytest.mark.parametrize("name", ["a[1].jsonl", "what?.jsonl", "*.jsonl"])
def test_an_existing_path_is_a_file_and_not_a_pattern(tmp_path, name):
    for other in ("a1.jsonl", "whatX.jsonl"):
        (tmp_path / other).write_text('{"text": "other"}\n')
    (tmp_path / name).write_text('{"text": "this"}\n')
    shards = files(tmp_path / name)
    assert shards.names == [f"{name} 17"]
    assert shards.open(0, None).next() == "this"


def test_files_in_a_folder_named_like_a_pattern_are_found(tmp_path):
    folder = tmp_path / "run[1]"
    folder.mkdir()
    for name in ("a.jsonl", "b.jsonl"):
        (folder / name).write_text('{"text": "abc"}\n')
    assert files(folder / "b.jsonl", folder / "a.jsonl").names == ["b.jsonl 16", "a.jsonl 16"]


def test_a_pattern_still_finds_files_by_name(tmp_path):
    for name in ("a2.jsonl", "a1.jsonl", "b1.jsonl"):
        (tmp_path / name).write_text("")
    assert files(tmp_path / "a[12].jsonl").names == ["a1.jsonl 0", "a2.jsonl 0"]


def test_files_of_unknown_formats_or_named_twice_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("")
    with pytest.raises(InvalidOption, match=r"files: .*a\.csv has a suffix of no known"):
        files(tmp_path / "a.csv")
    (tmp_path / "a.jsonl").write_text("")
    with pytest.raises(InvalidOption, match="are the same file"):
        files(tmp_path / "a.jsonl", tmp_path / "*.jsonl")


def test_damaged_files_are_named_and_not_read_again(tmp_path):
    whole = gzip.compress(b'{"text": "a"}\n' * 1000)
    (tmp_path / "a.jsonl.gz").write_bytes(whole[:-12])
    (tmp_path / "b.jsonl.zst").write_bytes(b"nonsense that is no zstd")
    (tmp_path / "c.parquet").write_bytes(b"PAR1 and no footer")
    for name in ("a.jsonl.gz", "b.jsonl.zst", "c.parquet"):
        with pytest.raises(CorruptFile, match=name):
            read_all(files(tmp_path / name).open(0, None))


def test_a_parquet_file_without_the_text_column_is_refused(tmp_path):
    pq.write_table(pa.table({"txt": ["a"], "text_id": [1]}), tmp_path / "a.parquet")
    with pytest.raises(InvalidDocument, match=r"no column 'text' \(it has txt, text_id\)"):
        files(tmp_path / "a.parquet").open(0, None)
    with pytest.raises(InvalidDocument, match="holds int64 but text is needed"):
        files(tmp_path / "a.parquet", text_column="text_id").open(0, None)


def test_a_null_in_parquet_is_a_bad_record(tmp_path):
    pq.write_table(pa.table({"text": ["a", None, "b"]}), tmp_path / "a.parquet")
    first, bad, last = read_all(files(tmp_path / "a.parquet").open(0, None))
    assert (first, last) == ("a", "b")
    assert bad == BadRecord("a.parquet: row 1 has null under 'text'")


@pytest.mark.parametrize(
    "cursor",
    [
        {},
        {"line": 0},
        {"line": 0, "offset": 3},
        {"line": 0, "offset": -1},
        {"line": 0, "offset": 9999},
        "x",
        [1, 2],
    ],
)
def test_a_cursor_outside_the_file_is_refused(tmp_path, cursor):
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n' * 3)
    with pytest.raises(InvalidState):
        files(tmp_path / "a.jsonl").open(0, cursor)


def test_a_compressed_file_that_became_shorter_is_a_changed_source(tmp_path):
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"text": "a"}\n'))
    with pytest.raises(SourceChanged, match="before the position of the cursor"):
        files(tmp_path / "a.jsonl.gz").open(0, {"line": 9, "offset": 999})


@pytest.mark.parametrize("share", [0.5, 2])
def test_a_file_that_changes_size_during_a_stream_is_an_error_and_not_another_epoch(
    tmp_path, share
):
    """Faults 23 and 49: never a shorter or longer epoch."""
    file = tmp_path / "a.jsonl"
    lines = ['{"text": "11 12 13"}\n'] * 20
    file.write_text("".join(lines))
    options = config(backend="files", files=[str(file)], shuffle=False)
    with open_stream(options, tokenizer=Numbers()) as stream:
        next(stream)
        file.write_text("".join(lines[: int(20 * share)] * max(1, int(share))))
        with pytest.raises(SourceChanged, match="changed during the run: it had 420 bytes"):
            for _ in range(100):
                next(stream)


def examples(texts="ab"):
    yield from ({"text": text} for text in texts)


def plain():
    return IterableDataset.from_generator(examples)


class OwnStage(_BaseExamplesIterable):
    """A stage that no version of `datasets` has, over several others."""

    def __init__(self, *below):
        super().__init__()
        self.sources = below

    num_shards = 1

    def __iter__(self):
        for below in self.sources:
            yield from below

    def shard_data_sources(self, *_shard, **_options):
        return self

    def _init_state_dict(self):
        self._state_dict = [below._init_state_dict() for below in self.sources]
        return self._state_dict


HIDING = {
    "alone": lambda d: d,
    "interleaved": lambda d: interleave_datasets([plain(), d]),
    "interleaved at random": lambda d: interleave_datasets([plain(), d], [0.5, 0.5], seed=1),
    "concatenated": lambda d: concatenate_datasets([plain(), d]),
    "side by side": lambda d: concatenate_datasets([plain().rename_column("text", "a"), d], axis=1),
    "mapped": lambda d: d.map(lambda example: example),
    "filtered": lambda d: d.filter(lambda example: True),
    "taken from": lambda d: d.take(2),
    "skipped in": lambda d: d.skip(0),
    "renamed": lambda d: d.rename_column("text", "a").rename_column("a", "text"),
    "repeated": lambda d: d.repeat(2),
    "batched": lambda d: d.batch(2).map(lambda example: {"text": "".join(example["text"])}),
    "deep": lambda d: concatenate_datasets([interleave_datasets([d, plain()]).take(3)]).skip(1),
    "unknown": lambda d: IterableDataset(OwnStage(plain()._ex_iterable, d._ex_iterable)),
}


@pytest.mark.parametrize("hide", HIDING.values(), ids=HIDING)
def test_a_dataset_shuffled_by_datasets_is_refused_at_any_depth(hide):
    open_stream(config(), source=hide(plain()), tokenizer=Numbers())
    with pytest.raises(InvalidOption, match=r"leave out \.shuffle\(\) and set data\.shuffle"):
        open_stream(config(), source=hide(plain().shuffle(seed=1)), tokenizer=Numbers())


def test_the_error_of_a_shuffled_dataset_names_the_option_of_keywords():
    with pytest.raises(InvalidOption, match=r"\.shuffle\(\) and set shuffle, which"):
        open_stream(source=plain().shuffle(seed=1), tokenizer=Numbers(), max_length=8, batch_size=1)


def test_a_shuffle_inside_a_generator_is_allowed_as_the_generator_restarts():
    given = {"texts": plain().shuffle(seed=1)}
    dataset = IterableDataset.from_generator(examples, gen_kwargs=given)
    open_stream(config(), source=dataset, tokenizer=Numbers())


def test_an_object_that_is_not_a_source_is_refused():
    with pytest.raises(InvalidOption, match="source is a list but must be"):
        open_stream(config(), source=["a"], tokenizer=Numbers())


@pytest.mark.parametrize("num_shards", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("num_streams", [1, 2, 3, 4])
@pytest.mark.parametrize("shuffle", [False, True])
def test_streams_share_all_records_of_every_epoch(num_shards, num_streams, shuffle):
    documents = unique_documents([1] * 23)
    source = ListSource(shards_of(documents, num_shards))
    for epoch in range(3):
        read = []
        for stream in range(num_streams):
            options = options_of(shuffle=shuffle, num_streams=num_streams, batch_size=num_streams)
            walk = ShardReader(source, Share(options=options, stream=stream))
            walk.begin(epoch)
            read += read_all(walk)
        assert sorted(read) == sorted(str(document[0]) for document in documents)


def test_the_order_of_shards_differs_between_epochs():
    source = ListSource([[[number]] for number in range(20)])
    walk = ShardReader(source, Share(options=options_of()))
    orders = []
    for epoch in range(3):
        walk.begin(epoch)
        orders.append(tuple(read_all(walk)))
    assert len(set(orders)) == 3
    assert len({frozenset(order) for order in orders}) == 1
