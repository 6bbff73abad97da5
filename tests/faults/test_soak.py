"""A round of the soak, and controls that it detects faults."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from quire.stream import Stream
from tests.faults.soak import soak
from tests.faults.soak_pack import SoakedPack
from tests.faults.soak_stream import SoakedStream

# Streams of the soak are uneven on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:of . streams, .* ended before the others")


def test_37_32_45_a_round_of_the_soak_loses_nothing(tmp_path):
    """Minutes or hours of it: `python -m tests.faults.soak --minutes 30`."""
    kills = 0
    for seed in range(1, 6):  # on a fast machine a round may end before its kills
        found = soak(0, seed=seed, folder=tmp_path / str(seed))
        assert found["failures"] == []
        assert found["rounds"] == found["outputs whole"] == found["epochs of streams"] == 1
        assert found["tokens"] > 100_000
        kills += found["kills"]
        if kills:
            break
    assert kills > 0


def test_a_stream_that_continues_one_batch_too_late_is_detected(tmp_path, monkeypatch):
    real = Stream.set_state

    def too_late(self, state):
        real(self, state)
        next(self)

    monkeypatch.setattr(Stream, "set_state", too_late)
    with pytest.raises(AssertionError):
        SoakedStream(tmp_path, random.Random(0), Counter()).run()


def test_a_token_that_is_not_in_the_corpus_is_detected(tmp_path):
    work = SoakedPack(tmp_path, random.Random(0), Counter())
    place = next(n for n, text in enumerate(work._records) if isinstance(text, str) and text)
    work._records[place] += "!"
    with pytest.raises(AssertionError, match="other tokens than the corpus has"):
        work.run()
