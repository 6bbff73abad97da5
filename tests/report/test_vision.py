"""The report of vision-language packs: fill per budget, which budget binds, where samples went."""

from __future__ import annotations

import json

import numpy as np
import pytest

from quire.errors import InvalidOption
from quire.report import ReportOptions, report_figures, write_report
from quire.vision import FusionDataset, PackedVLDataset


def sample(tokens: int, images: int = 1) -> dict:
    """A sample whose images have four patches each; only its sizes are read."""
    return {"length": tokens, "image_grid_thw": np.array([[1, 2, 2]] * images).reshape(-1, 3)}


def packs_of(*sizes: tuple[int, int], **options: object) -> PackedVLDataset:
    options = {"packing_length": 10, "packing_max_images": 3, "packing_drop_last": False} | options
    return PackedVLDataset([sample(*size) for size in sizes], **options)


def test_each_budget_has_its_fill_and_the_packs_where_it_binds():
    packed = packs_of((5, 1), (4, 1), (1, 3), (12, 1))
    figures = report_figures(packed)
    shown = [[(b["start"], b["length"], b["images"]) for b in row] for row in figures["rows"]]
    assert sorted(shown) == [[(0, 1, 3)], [(0, 5, 1), (5, 4, 1)], [(0, 12, 1)]]
    tokens, images, patches, samples = figures["budgets"]
    assert (tokens["limit"], tokens["total"], tokens["binds"]) == (10, 22, 2)
    assert (images["limit"], images["total"], images["binds"]) == (3, 6, 1)
    assert (patches["limit"], patches["total"], patches["per_pack"]["max"]) == (None, 24, 12.0)
    assert (samples["limit"], samples["total"], samples["per_pack"]["max"]) == (None, 4, 2.0)
    assert tokens["packs_needed"] == 3
    assert tokens["fill_mean"] == pytest.approx((0.9 + 0.1 + 1) / 3)
    assert images["fill"]["counts"][6] == 1, "1 of 3 images: between 30 % and 35 %"
    assert images["fill"]["counts"][-1] == 1
    assert figures["headline"]["single_long"] == 1
    assert figures["headline"]["rows_bound"] == 3


def test_limits_of_samples_are_a_budget_too():
    figures = report_figures(packs_of(*[(1, 0)] * 4, packing_max_documents=2))
    by_name = {budget["name"]: budget for budget in figures["budgets"]}
    assert (by_name["samples"]["limit"], by_name["samples"]["binds"]) == (2, 2)
    assert by_name["tokens"]["binds"] == 0
    assert "patches" not in by_name, "there are none, and none are limited"


def test_the_ledger_says_what_was_dropped():
    figures = report_figures(packs_of((5, 1), (12, 1), packing_allow_single_long=False))
    assert figures["ledger"]["documents"]["dropped"] == {"skipped_oversized": 1}
    assert figures["headline"]["dropped_tokens"] == 12


def test_fused_datasets_are_counted_by_name():
    fused = FusionDataset({"charts": [sample(4)] * 3, "photos": [sample(6)] * 2})
    figures = report_figures(PackedVLDataset(fused, packing_length=10, packing_drop_last=False))
    found = {s["name"]: (s["documents"], s["tokens"]) for s in figures["sources"]}
    assert found == {"charts": (3, 12), "photos": (2, 12)}
    assert {b["file"] for row in figures["rows"] for b in row} == {"charts", "photos"}


def test_images_count_only_where_they_are_known():
    packed = PackedVLDataset([{"x": 1}] * 3, lengths=[3, 4, 5], packing_length=12)
    assert [budget["name"] for budget in report_figures(packed)["budgets"]] == ["tokens", "samples"]


def test_no_sample_is_read():
    class Closed:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, number: int) -> dict:
            raise AssertionError("a sample was read")

    packed = PackedVLDataset(Closed(), lengths=[3, 4, 5], packing_length=12)
    assert report_figures(packed)["headline"]["documents"] == 3


def test_every_pack_of_a_rank_is_counted():
    sizes = [(int(n), int(n) % 3) for n in np.random.default_rng(3).integers(1, 9, 60)]
    packed = packs_of(*sizes, rank=1, world_size=2)
    figures = report_figures(packed, options=ReportOptions(num_rows=1000))
    expected = [[sample["length"] for sample in pack] for pack in packed]
    assert [[block["length"] for block in row] for row in figures["rows"]] == expected
    assert figures["ledger"] == packed.telemetry().ledger.to_dict()


def test_without_lengths_the_error_says_what_to_give():
    packed = PackedVLDataset([{"input_ids": [1, 2]}], packing_length=10)
    with pytest.raises(TypeError, match="give lengths=, or a column 'length'"):
        report_figures(packed)


def test_a_tokenizer_has_no_use():
    with pytest.raises(InvalidOption, match="takes no tokenizer"):
        report_figures(packs_of((5, 1)), tokenizer="byte")


def test_the_page_has_the_figures_and_speaks_of_packs(tmp_path):
    packed = packs_of((5, 1), (4, 1))
    figures = write_report(packed, tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "The first packs" in page
    assert "The first rows" not in page
    assert "@@" not in page.replace((figures["name"]), "").split("<script")[0]
    assert json.loads(json.dumps(figures)) == figures
