"""Our mRoPE positions equal those of the models' own `get_rope_index`."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.collate import MropeOptions
from quire.collate.vision.mrope import Grids, mrope_position_ids
from quire.errors import InvalidOption, InvalidRow
from tests.vision.language_models import FAMILIES, model

NO_GRIDS = np.empty((0, 3), dtype=np.int64)


def images(*grids):
    return Grids(image=np.array(grids), video=NO_GRIDS)


def test_a_two_by_two_image_at_index_18_has_one_time_and_text_continues_at_20():
    """The golden case of the contract."""
    types = np.array([0] * 18 + [1] * 4 + [0, 0])
    time, height, width = mrope_position_ids(types, images([1, 4, 4]))
    assert time[:18].tolist() == list(range(18))
    assert time[18:].tolist() == [18, 18, 18, 18, 20, 21]
    assert height[18:].tolist() == [18, 18, 19, 19, 20, 21]
    assert width[18:].tolist() == [18, 19, 18, 19, 20, 21]


def test_text_advances_in_all_three_axes():
    no_images = Grids(image=NO_GRIDS, video=NO_GRIDS)
    assert mrope_position_ids(np.zeros(3, np.int64), no_images).tolist() == [[0, 1, 2]] * 3


def test_what_follows_an_image_starts_after_its_longer_side():
    positions = mrope_position_ids(np.array([1, 1, 1, 0]), images([1, 2, 6]))
    assert positions[:, -1].tolist() == [3, 3, 3]


def test_adjacent_images_are_separate():
    positions = mrope_position_ids(np.array([1, 1, 0]), images([1, 2, 2], [1, 2, 2]))
    assert positions.tolist() == [[0, 1, 2]] * 3


def test_seconds_space_the_frames_of_a_video():
    options = MropeOptions(tokens_per_second=2)
    seconds = np.array([1.5], dtype=np.float32)
    grids = Grids(image=NO_GRIDS, video=np.array([[3, 2, 2]]), seconds=seconds)
    time, height, _ = mrope_position_ids(np.array([0, 2, 2, 2, 0]), grids, options)
    assert time.tolist() == [
        0,
        1,
        4,
        7,
        2,
    ]  # models continue after the sides, not the time
    assert height.tolist() == [0, 1, 1, 1, 2]


def test_times_are_rounded_in_float32_as_in_the_models():
    """0.7 s and 2 tokens a second: the sixth frame is at 7, which float64 would round to 6."""
    grids = Grids(image=NO_GRIDS, video=np.array([[6, 2, 2]]), seconds=np.array([0.7], np.float32))
    ours = mrope_position_ids(np.full(6, 2), grids, MropeOptions(tokens_per_second=2))
    expected, _ = model("qwen2_5_vl").model.get_rope_index(
        torch.zeros(1, 6, dtype=torch.long),
        mm_token_type_ids=torch.full((1, 6), 2),
        video_grid_thw=torch.tensor([[6, 2, 2]]),
        second_per_grid_ts=torch.tensor([0.7]),
    )
    assert ours[0].tolist() == expected[0, 0].tolist() == [0, 1, 2, 4, 5, 7]


def test_separate_frames_are_positioned_like_images_with_text_between_them():
    options = MropeOptions(frames_stand_apart=True)
    grids = Grids(image=NO_GRIDS, video=np.array([[2, 2, 2]]))
    assert mrope_position_ids(np.array([2, 0, 2]), grids, options).tolist() == [[0, 1, 2]] * 3


@st.composite
def encoded(draw, family):
    """Token types, grids and seconds of a sample as its family's processor lays it out."""
    types, image, video = [0] * draw(st.integers(0, 5)), [], []
    for kind in draw(st.lists(st.sampled_from([1, 2]), max_size=4)):
        side = st.integers(1, 5).map(lambda merged: 2 * merged)
        grid = [1 if kind == 1 else draw(st.integers(1, 4)), draw(side), draw(side)]
        (image if kind == 1 else video).append(grid)
        per_frame = grid[1] * grid[2] // 4
        if family.startswith("qwen3") and kind == 2:
            for _ in range(grid[0]):
                types += [0, *[2] * per_frame]
        else:
            types += [kind] * (grid[0] * per_frame)
        types += [0] * draw(st.integers(1, 4))
    types += [0] * (not types)
    seconds = None
    if family == "qwen2_5_vl" and draw(st.booleans()):
        step = st.floats(0.03125, 8, width=32)
        seconds = draw(st.lists(step, min_size=len(video), max_size=len(video)))
    return types, image, video, seconds


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=100, deadline=None)
@given(drawn=st.data())
def test_positions_equal_those_of_the_model(family, drawn):
    types, image, video, seconds = drawn.draw(encoded(family))
    owner = model(family).model
    token_types = torch.tensor([types])
    expected, _ = owner.get_rope_index(
        torch.zeros_like(token_types),
        mm_token_type_ids=token_types,
        image_grid_thw=torch.tensor(image) if image else None,
        video_grid_thw=torch.tensor(video) if video else None,
        **({} if seconds is None else {"second_per_grid_ts": torch.tensor(seconds)}),
    )
    grids = Grids(
        image=np.array(image, np.int64).reshape(-1, 3),
        video=np.array(video, np.int64).reshape(-1, 3),
        seconds=None if seconds is None else np.array(seconds, np.float32),
    )
    ours = mrope_position_ids(np.array(types), grids, MropeOptions.of_config(owner.config))
    assert ours.tolist() == expected[:, 0].tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_options_come_from_the_config(family):
    options = MropeOptions.of_config(model(family).config)
    assert options.image_token_id == model(family).config.image_token_id
    assert options.frames_stand_apart == family.startswith("qwen3")
    assert options.tokens_per_second == (2 if family == "qwen2_5_vl" else None)


def test_a_model_of_another_family_is_rejected_with_the_known_ones():
    config = model("qwen2_vl").config.text_config
    with pytest.raises(InvalidOption, match=r"unknown model_type 'qwen2_vl_text'.*'qwen2_vl'"):
        MropeOptions.of_config(config)


def test_more_grids_than_placeholders_are_rejected_fault_19():
    with pytest.raises(InvalidRow, match=r"fewer image placeholders .* \(2, found 1\)"):
        mrope_position_ids(np.array([0, 1]), images([1, 2, 2], [1, 2, 2]))


def test_more_placeholders_than_grids_are_rejected_fault_19():
    with pytest.raises(InvalidRow, match=r"1 image placeholders, but .* no grid is left"):
        mrope_position_ids(np.array([1, 1, 0]), images([1, 2, 2]))


def test_truncated_image_placeholders_are_rejected_fault_19():
    with pytest.raises(InvalidRow, match=r"3 image placeholders, but the next image needs 4"):
        mrope_position_ids(np.array([0, 1, 1, 1]), images([1, 4, 4]))
