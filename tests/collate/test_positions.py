from __future__ import annotations

import numpy as np
import pytest
import torch

from quire.collate import get_pos_ids_for_packed_sequence
from quire.errors import InvalidBoundaries, InvalidOption, InvalidRow

TOKENS = [[5, 6, 2, 7, 2, 8], [2, 2, 5, 6, 7, 2]]


def test_positions_restart_after_eos():
    positions = get_pos_ids_for_packed_sequence(torch.tensor(TOKENS), 2)
    assert isinstance(positions, torch.Tensor) and positions.dtype == torch.int64
    assert positions.tolist() == [[0, 1, 2, 0, 1, 0], [0, 0, 0, 1, 2, 3]]


def test_positions_restart_at_bos():
    positions = get_pos_ids_for_packed_sequence(np.array(TOKENS), 2, eos=False)
    assert isinstance(positions, np.ndarray)
    assert positions.tolist() == [[0, 1, 0, 1, 0, 1], [0, 0, 1, 2, 3, 0]]


def test_given_starts_take_precedence_over_tokens():
    starts = [[0, 1], torch.tensor([0, 4])]
    positions = get_pos_ids_for_packed_sequence(torch.tensor(TOKENS), 2, document_starts=starts)
    assert positions.tolist() == [[0, 0, 1, 2, 3, 4], [0, 1, 2, 3, 0, 1]]


def test_narrow_tokens_do_not_narrow_the_positions():
    row = torch.ones((1, 300), dtype=torch.uint8)
    assert get_pos_ids_for_packed_sequence(row, 2)[0, -1] == 299


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((TOKENS,), InvalidOption, "neither document_starts nor token_id"),
        (([5, 6], 2), InvalidRow, r"shape \(2,\)"),
        (([[0.5]], 2), InvalidRow, "dtype float64"),
        ((TOKENS, 2, [[0]]), InvalidBoundaries, "1 lists of document_starts for 2 rows"),
        ((TOKENS, 2, [[0], [0, 6]]), InvalidBoundaries, r"row 1: document_starts\[1\] is 6"),
    ],
)
def test_invalid_tokens_or_starts_are_rejected(arguments, error, message):
    with pytest.raises(error, match=message):
        get_pos_ids_for_packed_sequence(*arguments)
