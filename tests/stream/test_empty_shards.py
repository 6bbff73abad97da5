"""Shards without a document (fault 25), with one stream and with several."""

from __future__ import annotations

import re
import warnings

import pytest

from quire.errors import InvalidOption
from quire.stream import open_stream
from tests.stream.inputs import ListSource, Numbers, config, take, unique_documents

DOCUMENTS = unique_documents([5, 3, 9, 14, 2, 6, 30, 4, 7, 12])
EMPTY_TEXTS = [[], []]


def stream_over(*shards, **options):
    source = ListSource([list(shard) for shard in shards])
    return open_stream(config(**options), source=source, tokenizer=Numbers())


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("repeat", [False, True])
def test_25_an_empty_shard_changes_nothing_for_one_stream(shuffle, repeat):
    with stream_over(DOCUMENTS, shuffle=shuffle, repeat=repeat) as stream:
        first = take(stream, 3)
        count = stream.ledger.documents.input
    with stream_over([], DOCUMENTS, [], shuffle=shuffle, repeat=repeat) as stream:
        assert len(take(stream, 3)) == len(first) == 3
        assert stream.ledger.documents.input == count


def test_25_an_empty_shard_is_skipped_if_the_stream_has_another():
    with stream_over(DOCUMENTS, DOCUMENTS, [], [], num_streams=2, shuffle=False) as stream:
        assert len(take(stream, 50)) == 50


def test_25_a_stream_with_only_empty_shards_names_them_and_three_remedies():
    with (
        stream_over(DOCUMENTS, [], DOCUMENTS, [], num_streams=2, shuffle=False) as stream,
        pytest.raises(InvalidOption) as caught,
    ):
        next(stream)
    assert str(caught.value) == (
        "stream 1 of 2 finds no documents in the source, and data.repeat would search forever: it "
        "reads one in 2 of 4 shards, and those are empty (shard-1, shard-3); add documents, remove "
        "empty shards, set data.shuffle, which deals others in every epoch, or lower "
        "data.num_streams"
    )


@pytest.mark.parametrize(
    ("shards", "options"),
    [
        ([DOCUMENTS, DOCUMENTS], {"num_streams": 2, "shuffle": False}),
        ([DOCUMENTS, [], DOCUMENTS, []], {"num_streams": 2, "shuffle": True}),
        ([DOCUMENTS, [], DOCUMENTS, []], {"num_streams": 1, "shuffle": False}),
    ],
)
def test_25_each_of_the_remedies_works(shards, options):
    with stream_over(*shards, **options) as stream:
        assert len(take(stream, 50)) == 50


@pytest.mark.parametrize("shuffle", [False, True])
def test_fewer_documents_than_streams_are_refused_with_that_reason(shuffle):
    with (
        stream_over([[11, 12]], num_streams=2, shuffle=shuffle) as stream,
        pytest.raises(InvalidOption, match="one document in 2, and there are fewer documents"),
    ):
        next(stream)


def test_an_empty_source_of_one_stream_is_refused_naming_its_shards():
    with (
        stream_over([], []) as stream,
        pytest.raises(InvalidOption, match=r"shard is empty \(shard-[01], shard-[01]\); add docu"),
    ):
        next(stream)


def test_a_stream_whose_texts_are_all_empty_is_refused_by_its_number():
    with (
        stream_over(DOCUMENTS, EMPTY_TEXTS, num_streams=2, shuffle=False) as stream,
        pytest.raises(InvalidOption, match="has no token for stream 1 of 2, and"),
    ):
        next(stream)


@pytest.mark.parametrize("last_batch", ["pad", "drop"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_25_without_repeat_a_stream_without_documents_warns(shuffle, last_batch):
    options = {"num_streams": 2, "shuffle": shuffle, "repeat": False, "last_batch": last_batch}
    with stream_over(DOCUMENTS, [], **options) as stream, pytest.warns(UserWarning) as told:
        take(stream)
        ledger = stream.ledger.check()
    first, *later = [str(warning.message) for warning in told]
    assert re.search(r"stream [01] of 2 finds no documents .*lower data\.num_s", first)
    (second,) = later
    padded = r"of 2 streams, [01] ended before the others, so batches are padded"
    assert re.match("the stream ended without a batch" if last_batch == "drop" else padded, second)
    assert ledger.documents.emitted == (len(DOCUMENTS) if last_batch == "pad" else 0)


def test_25_streams_with_documents_do_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for shards in ([DOCUMENTS, DOCUMENTS], [DOCUMENTS], [DOCUMENTS, DOCUMENTS, [], []]):
            with stream_over(*shards, num_streams=2, shuffle=False, repeat=False) as stream:
                take(stream)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_streams_that_end_before_others_are_reported_once(prefetch):
    """Two streams of which one has a third of the documents: batches are padded to the end."""
    shards = [[[n, n + 1] for n in range(10, 40, 2)], [[n, n + 1] for n in range(50, 60, 2)]]
    options = {"num_streams": 2, "shuffle": False, "repeat": False, "grain_prefetch": prefetch}
    with stream_over(*shards, **options) as stream, pytest.warns(UserWarning) as told:
        batches = take(stream)
    padded = [int((~batch.attention_mask.any(axis=-1)).sum()) for batch in batches]
    (message,) = [str(warning.message) for warning in told]
    step = [number for number, rows in enumerate(padded) if rows][1]
    assert len(batches) > step + 1 and message == (
        "of 2 streams, 1 ended before the others, so batches are padded until all have ended: "
        f"{padded[step]} of 2 rows in batch {step}; data.num_streams: 1 pads only the last batch, "
        "data.last_batch: drop ends with the first stream"
    )


@pytest.mark.parametrize(
    ("shards", "said"),
    [
        ([[]], "of 0 documents, none was dropped"),
        ([EMPTY_TEXTS], r"of \d+ documents, \d+ dropped as"),
    ],
)
@pytest.mark.parametrize("prefetch", [0, 2])
def test_08_a_stream_that_ends_without_a_batch_warns(shards, said, prefetch):
    """Fault 8."""
    options = {"repeat": False, "grain_prefetch": prefetch}
    with (
        stream_over(*shards, **options) as stream,
        pytest.warns(UserWarning, match=f"the stream ended without a batch: {said}"),
    ):
        assert take(stream) == []
