"""A batch follows the rules of labels and boundaries for its windows."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.boundaries.batch import Boundaries
from quire.labels import LabelOptions, causal_labels
from quire.stream.batch import BatchMaker
from quire.stream.packers import Window
from tests.stream.inputs import options_of

EOS, PAD = 2, 0


def by_the_rules(windows, size, options):
    """Every array by slow loops over all positions, including the window's last one."""
    tokens = np.full((len(windows), size), PAD)
    segments = np.zeros((len(windows), size), int)
    positions = np.tile(np.arange(size), (len(windows), 1))
    for row, window in enumerate(windows):
        if window is None:
            continue
        tokens[row, : len(window.tokens)] = window.tokens
        starts = np.cumsum([0, *window.lengths[:-1]])
        bounds = Boundaries.of_rows([starts], [len(window.tokens)], width=size)
        segments[row], positions[row] = bounds.segment_ids()[0], bounds.position_ids()[0]
    return {
        "input_ids": tokens[:, :-1],
        "labels": causal_labels(tokens, segments, options)[:, 1:],
        "attention_mask": segments[:, :-1] > 0,
        "segment_ids": segments[:, :-1],
        "position_ids": positions[:, :-1],
    }


@st.composite
def windows_of(draw, size):
    """A row of padding, or fragments of at most ``size`` tokens, EOS and PAD among them."""
    if draw(st.integers(0, 5)) == 0:
        return None
    fragments, left = [], draw(st.integers(1, size))
    while left:
        length = draw(st.integers(1, left))
        tokens = draw(st.lists(st.integers(0, 9), min_size=length, max_size=length))
        fragments.append(np.array(tokens, np.int32))
        left -= length
    return Window.of(fragments, len(fragments), len(fragments))


@settings(max_examples=300)
@given(data=st.data(), size=st.integers(2, 9), masks=st.booleans(), learns_eos=st.booleans())
def test_a_batch_follows_the_rules_of_labels_and_boundaries(data, size, masks, learns_eos):
    windows = data.draw(st.lists(windows_of(size), min_size=4, max_size=4))
    stream_options = options_of(
        max_length=size - 1,
        mask_boundary_loss=masks,
        train_on_eos=learns_eos,
        emit_position_ids=True,
        eos_token_id=EOS,
        pad_token_id=PAD,
    )
    batch = BatchMaker(stream_options).make(windows, 2).to_dict()
    options = LabelOptions(mask_boundary_loss=masks, train_on_eos=learns_eos, eos_token_id=EOS)
    expected = by_the_rules(windows, size, options)
    assert batch.keys() == expected.keys()
    for name, array in expected.items():
        assert batch[name].shape == (2, 2, size - 1)
        assert batch[name].dtype == (bool if name == "attention_mask" else np.int32)
        assert batch[name].flags.c_contiguous
        assert batch[name].reshape(4, -1).tolist() == array.tolist(), name
