"""`quire plan --estimate`: what packing would take, from a sample."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess

import pytest

import quire
from quire.corpus.estimate import MIN_DIFFERENCE as STEP
from quire.corpus.estimate import Sample, estimate, pack_sample
from quire.corpus.options import CorpusOptions
from quire.corpus.partitions import MAX_PARTITIONS
from quire.errors import InvalidOption
from tests import commands

SAMPLE = Sample(
    num_bytes=1_000 * STEP,
    documents=10,
    tokens=250,
    rows=5,
    utilization=0.5,
    seconds=2.0,
    peak_memory=7_000 * STEP,
    warm_bytes=200 * STEP,
    warm_memory=3_000 * STEP,
    total_bytes=4_000 * STEP,
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("estimate") / "corpus.jsonl"
    path.write_text("".join(json.dumps({"text": "x" * (7 * i % 90)}) + "\n" for i in range(2_000)))
    return path


def run(*arguments: object) -> CompletedProcess[str]:
    return commands.run("plan", *arguments, "--tokenizer=byte")


def test_the_estimate_is_for_the_corpus_of_the_sample() -> None:
    whole = estimate(SAMPLE, partition_size=500 * STEP, workers=3)
    assert whole.num_bytes == 4_000 * STEP
    assert (whole.documents, whole.tokens, whole.rows) == (40, 1_000, 20)
    assert whole.partitions == 8
    assert whole.hours * 3600 == pytest.approx(3.0)  # 8 s in three rounds of 8 partitions
    assert whole.memory_per_worker == 7_000 * STEP  # what was seen, though a partition is smaller


def test_the_estimate_is_for_the_given_tokens_or_documents() -> None:
    by_tokens = estimate(SAMPLE, partition_size=2_000 * STEP, workers=1, tokens=2_500)
    assert by_tokens == estimate(SAMPLE, partition_size=2_000 * STEP, workers=1, documents=100)
    assert (by_tokens.rows, by_tokens.partitions) == (50, 5)
    # 5 bytes for each byte of text more
    assert by_tokens.memory_per_worker == (7_000 + 5 * 1_000) * STEP
    assert by_tokens.hours * 3600 == pytest.approx(20.0)


def test_samples_of_nearly_equal_size_give_no_estimate_of_memory() -> None:
    alike = replace(SAMPLE, warm_bytes=SAMPLE.num_bytes - STEP + 1)
    assert estimate(alike, partition_size=2_000 * STEP, workers=1).memory_per_worker is None
    assert estimate(alike, partition_size=STEP, workers=1).memory_per_worker is not None


def test_workers_without_a_partition_save_no_time_and_take_no_memory() -> None:
    few = estimate(SAMPLE, partition_size=2_000 * STEP, workers=2)
    many = estimate(SAMPLE, partition_size=2_000 * STEP, workers=200)
    assert many.hours == few.hours
    assert many.busy_workers == 2


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ({"documents": 5, "tokens": 5}, "give only one"),
        ({"documents": 0}, "documents is 0"),
        ({"tokens": -1}, "tokens is -1"),
        ({"tokens": 10**9, "partition_size": 10}, "more than 100000; raise it"),
    ],
)
def test_a_size_that_makes_no_sense_is_refused(size: dict[str, int], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        estimate(SAMPLE, workers=1, **{"partition_size": 2_000 * STEP, **size})


def test_a_sample_of_everything_gives_the_figures_of_packing(corpus: Path, tmp_path: Path) -> None:
    packed = quire.pack_corpus([corpus], tmp_path / "packed", "byte", max_length=256)
    sample = pack_sample([corpus], "byte", CorpusOptions(max_length=256), size=1 << 20)
    assert sample.rows == packed.num_rows
    assert sample.tokens == packed.ledger.tokens.emitted + packed.ledger.tokens.special
    assert sample.documents == 2_000
    assert sample.num_bytes == sample.total_bytes == corpus.stat().st_size
    assert sample.utilization == pytest.approx(packed.utilization, abs=1e-4)
    assert 0 < sample.warm_memory <= sample.peak_memory
    assert sample.warm_bytes < sample.num_bytes


def test_a_part_of_the_corpus_is_representative(corpus: Path, tmp_path: Path) -> None:
    packed = quire.pack_corpus([corpus], tmp_path / "packed", "byte", max_length=256)
    options = CorpusOptions(max_length=256, partition_size=20_000)
    sample = pack_sample([corpus], "byte", options, size=20_000)
    assert 10_000 <= sample.num_bytes <= 25_000
    whole = estimate(sample, partition_size=20_000, workers=1)
    assert whole.rows == pytest.approx(packed.num_rows, rel=0.05)
    assert whole.documents == pytest.approx(2_000, rel=0.05)


def test_a_corpus_of_any_number_of_sample_sizes_is_estimated(tmp_path: Path) -> None:
    large = tmp_path / "large.jsonl"
    large.write_text('{"text": "abcdefgh"}\n' * (MAX_PARTITIONS + 10))
    sample = pack_sample([large], "byte", CorpusOptions(max_length=64), size=8 * 21)
    assert sample.num_bytes < 1_000
    assert sample.total_bytes == large.stat().st_size


def test_a_compressed_file_is_read_only_as_far_as_the_sample(tmp_path: Path, corpus: Path) -> None:
    packed = tmp_path / "corpus.jsonl.gz"
    packed.write_bytes(gzip.compress(corpus.read_bytes(), compresslevel=0))
    sample = pack_sample([packed], "byte", CorpusOptions(max_length=64), size=10_000)
    assert 10_000 <= sample.num_bytes <= 15_000
    assert sample.warm_bytes <= 2_000
    # All that was read is in the rows: every document has one BOS and one EOS or more.
    assert sample.tokens >= 2 * sample.documents > 0


def test_the_table_has_a_line_for_each_number_of_workers(corpus: Path) -> None:
    done = run(corpus, "--estimate", "--workers=1,64", "--tokens=1000000000", "--max-length=256")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("sample: 2,000 documents")
    assert "1,000,000,000 tokens" in lines[1]
    assert [line.split()[0] for line in lines[3:5]] == ["1", "64"]
    assert "lower --partition-size" in done.stdout
    assert "?" in lines[3]
    assert "too small to tell" in done.stdout


def test_json_holds_the_sample_and_the_estimates(corpus: Path) -> None:
    done = run(corpus, "--estimate", "--workers=2", "--max-length=256", "--json")
    said = json.loads(done.stdout)
    assert said["sample"]["documents"] == said["estimates"][0]["documents"] == 2_000
    assert said["estimates"][0]["workers"] == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--estimate", "--max-length=2,3"], "--max-length is 2, 3; give one"),
        (["--estimate", "--strategy=greedy", "--strategy=tight"], "--strategy is greedy, tight"),
        (["--tokens=5"], "add --estimate"),
        (["--estimate", "--workers=two"], "--workers is 'two'"),
        (["--estimate", "--workers=0"], "workers is 0"),
    ],
)
def test_mistakes_are_named(corpus: Path, arguments: list[str], message: str) -> None:
    done = run(corpus, *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_an_error_in_the_sample_is_that_of_packing(tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"text": 3}\n')
    done = run(bad, "--estimate")
    assert done.returncode == 2
    assert "record 0" in done.stderr
    assert "Traceback" not in done.stderr
    empty = tmp_path / "empty.jsonl"
    empty.write_text('{"text": ""}\n')
    assert "no row to estimate from" in run(empty, "--estimate", "--no-add-eos").stderr
