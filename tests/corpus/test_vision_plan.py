"""`quire plan` counts the rows that `quire pack` makes of samples with images."""

from __future__ import annotations

import json
import shlex

import numpy as np
import pytest

from quire.corpus import pack_corpus
from quire.corpus.options import CorpusOptions
from quire.corpus.vision_plan import SampleSizes, plan_samples
from quire.plan import PlanOptions
from quire.report import write_report
from tests.commands import run
from tests.corpus.vision_samples import IMAGE, sample, samples, write

ID = ("--image-token-id", IMAGE)


@pytest.fixture
def corpus(tmp_path):
    taught_nothing = sample(tmp_path, "untaught", 4, (1, 2), answer=0)
    return write(tmp_path, [*samples(tmp_path), taught_nothing])


def planned(corpus, *words):
    cache = corpus.parent / "cache"
    done = run("plan", corpus, *ID, *words, "--json", QUIRE_CACHE=str(cache))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def failed(corpus, *words):
    done = run("plan", corpus, *ID, *words, "--no-cache")
    assert done.returncode == 2
    return done.stderr


@pytest.mark.parametrize("limits", [{}, {"max_images": 3}, {"max_patches": 60}])
@pytest.mark.parametrize("strategy", ["exact_fit", "tight"])
def test_rows_and_drops_are_those_of_pack(corpus, limits, strategy):
    words = [w for name, most in limits.items() for w in (f"--{name.replace('_', '-')}", most)]
    result = pack_corpus(
        [corpus],
        corpus.parent / "packed",
        max_length=40,
        strategy=strategy,
        overlong="drop",
        image_token_id=IMAGE,
        **limits,
    )
    said = [planned(corpus, "--max-length", 40, "--strategy", strategy, *words) for _ in range(2)]
    assert said[0] == said[1]  # the second one from kept lengths
    one = said[0]["recommended"]
    ledger = result.ledger.to_dict()
    del ledger["tokens"]["trained"]  # only rows say it
    assert one["rows"] == result.num_rows
    assert one["ledger"] == ledger
    assert one["documents"] == one["documents_dropped"] + result.ledger.documents.emitted == 41
    dropped = ledger["documents"]["dropped"]
    assert (dropped["too_long"] > 0, dropped["unsupervised"]) == (True, 1)
    assert ("skipped_oversized" in dropped) == ("max_patches" in limits)
    assert one["utilization"] == pytest.approx(result.utilization)
    assert one["tokens_lost"] == ledger["tokens"]["input"] - ledger["tokens"]["emitted"]
    assert one["bound"] <= one["rows"]


def test_the_bound_knows_the_budgets(tmp_path):
    corpus = write(tmp_path, [sample(tmp_path, f"s{n}", 1, (1, 1)) for n in range(12)])
    one = planned(corpus, "--max-length", 1024, "--max-images", 3)["recommended"]
    assert one["rows"] == one["bound"] == 4
    assert planned(corpus, "--max-length", 1024)["recommended"]["rows"] == 1


def test_only_what_pack_accepts_is_compared(corpus):
    said = planned(corpus, "--max-length", "32,64")
    ways = {(one["strategy"], one["overlong"]) for one in said["candidates"]}
    assert ways == {(name, "drop") for name in ("best_fit", "exact_fit", "first_fit", "greedy")}
    assert not any(one["documents_cut"] for one in said["candidates"])
    limited = planned(corpus, "--max-length", 64, "--max-images", 4)
    assert [one["strategy"] for one in limited["candidates"]] == ["exact_fit"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--strategy", "wrapped"), "would cut samples with images"),
        (("--overlong", "truncate"), "would cut samples with images"),
        (("--strategy", "greedy", "--max-images", 4), "looks only at tokens"),
        (("--stride", 2), "leave --stride out"),
        (("--overlong", "split"), "tokens but a row holds 32, and a sample with images is never"),
    ],
)
def test_what_pack_refuses_is_refused(corpus, words, reason):
    assert reason in failed(corpus, "--max-length", 32, *words)


@pytest.mark.parametrize("limits", [(), ("--max-images", 4, "--max-patches", 80)])
def test_the_recommended_options_work_as_printed(corpus, limits):
    done = run("plan", corpus, *ID, "--max-length", "40,48", *limits, "--no-cache")
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("take "))
    words = shlex.split(line)[1:]
    assert " ".join(map(str, (*ID, *limits)[:2])) in line
    packed = run("pack", corpus, "--out", corpus.parent / "packed", *words)
    assert packed.returncode == 0, packed.stderr
    rows = packed.stdout.partition(" row")[0].split()[-1]
    assert f" in {rows} row" in done.stdout


@pytest.mark.parametrize("seed", [0, 6, 10, 57])
@pytest.mark.parametrize("limits", [{"max_images": 100}, {"max_patches": 2000}, {"max_images": 5}])
def test_a_limit_that_never_binds_costs_no_rows(seed, limits):
    chance = np.random.default_rng(seed)
    images = chance.integers(0, 4, 120)
    lengths = chance.integers(30, 480, 120)
    sizes = SampleSizes(lengths=lengths, images=images, patches=16 * images)
    options = PlanOptions(max_length=1024, strategy="exact_fit")
    free = plan_samples(sizes, options, CorpusOptions(max_length=1024), None)
    limited = plan_samples(sizes, options, CorpusOptions(max_length=1024, **limits), None)
    values, most = {"max_images": images, "max_patches": 16 * images}, next(iter(limits.items()))
    sums = np.add.reduceat(values[most[0]][limited.documents], limited.row_offsets[:-1])
    assert sums.max() <= most[1]
    assert sorted(limited.documents.tolist()) == list(range(120))
    if most[1] > 5:
        assert limited.num_rows == free.num_rows


@pytest.mark.parametrize(("overlong", "said"), [("split", None), ("drop", "drop")])
def test_a_report_does_not_say_that_samples_are_split(tmp_path, overlong, said):
    corpus = write(tmp_path, samples(tmp_path, 6))
    options = {"max_length": 64, "overlong": overlong, "image_token_id": IMAGE}
    pack_corpus([corpus], tmp_path / "packed", **options)
    headline = write_report(tmp_path / "packed", tmp_path / "page.html")["headline"]
    assert headline["overlong"] == said


def test_images_of_another_folder_are_found(tmp_path):
    (tmp_path / "lists").mkdir()
    corpus = write(tmp_path / "lists", samples(tmp_path, 6))
    assert "does not exist" in failed(corpus, "--max-length", 64)
    words = ("--max-length", 64, "--image-root", tmp_path)
    assert planned(corpus, *words)["recommended"]["documents"] == 6
    done = run("plan", corpus, *ID, *words, "--no-cache")
    assert f" --image-root {tmp_path} --image-token-id {IMAGE}" in done.stdout
