"""OnlinePacker: nothing lost, nothing late, exact after any restart."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.errors import InvalidLengths, InvalidOption, InvalidState, OversizedDocument
from quire.plan import buffer
from quire.plan.online import OnlinePacker
from tests.sealing import resealed

Rows = list[list[Any]]


def feed(packer: OnlinePacker, lengths: Iterable[int], first: int = 0) -> Rows:
    return [row for key, n in enumerate(lengths, first) for row in packer.add(key, n)]


def through_json(packer: OnlinePacker) -> OnlinePacker:
    names = ("max_length", "buffer_size", "max_documents_per_row", "align")
    restored: OnlinePacker = OnlinePacker(**{name: getattr(packer, name) for name in names})
    restored.load_state_dict(json.loads(json.dumps(packer.state_dict())))
    return restored


# ---- literal rows


def test_a_row_is_the_oldest_document_and_what_fills_it_exactly():
    packer = OnlinePacker(10, buffer_size=4)
    assert [packer.add(key, n) for key, n in zip("abcd", [6, 7, 3, 4], strict=True)] == [
        [], [], [], [["a", "d"]],
    ]  # fmt: skip
    assert packer.flush() == [["b", "c"]]
    assert packer.flush() == []


def test_subset_sums_find_the_fill_that_largest_fit_misses():
    packer = OnlinePacker(20, buffer_size=7)
    # After 5, largest-fit takes 12 and leaves a gap of 3; 8 + 7 leaves none.
    assert feed(packer, [5, 8, 12, 7, 4, 4, 4]) == [[0, 1, 3]]


def test_the_keys_of_a_row_are_in_the_order_in_which_they_were_added():
    packer = OnlinePacker(12, buffer_size=4)
    assert feed(packer, [2, 4, 6, 12]) == [[0, 1, 2]]


def test_of_equal_lengths_the_oldest_leaves():
    packer = OnlinePacker(10, buffer_size=5)
    assert feed(packer, [6, 4, 4, 4, 4]) == [[0, 1]]


def test_a_document_that_fills_a_row_gets_a_row_of_its_own():
    packer = OnlinePacker(8, buffer_size=2)
    assert feed(packer, [8, 8, 8]) == [[0], [1]]


def test_a_small_buffer_waits_for_two_rows_of_tokens():
    packer = OnlinePacker(100, buffer_size=2)
    assert feed(packer, [10] * 19) == []
    assert packer.num_waiting == 19
    assert packer.add(19, 10) == [list(range(10))]


def test_a_capped_row_waits_for_two_rows_of_documents():
    packer = OnlinePacker(100, buffer_size=2, max_documents_per_row=3)
    assert feed(packer, [1] * 5) == []
    assert packer.add(5, 1) == [[0, 1, 2]]


def test_a_row_limited_by_its_cap_takes_as_many_documents_as_allowed():
    packer = OnlinePacker(20, buffer_size=8, max_documents_per_row=3)
    # 4 + 16 would be a full row, but with only two documents.
    assert feed(packer, [4, 3, 16, 3, 12, 2, 2, 2]) == [[0, 1, 4]]


def test_a_row_limited_by_its_cap_keeps_room_for_its_last_documents():
    packer = OnlinePacker(20, buffer_size=9, max_documents_per_row=4)
    # 2 + 9 + 9 would be full with three.
    assert feed(packer, [2, 9, 9, 1, 1, 1, 1, 1, 1]) == [[0, 1, 3, 4]]


def test_space_is_rounded_up_to_align():
    packer = OnlinePacker(11, buffer_size=3, align=4)  # two units of four
    assert feed(packer, [1, 5, 4, 3]) == [[0, 2]]
    assert packer.flush() == [[1], [3]]


def test_flush_packs_by_size_where_that_takes_fewer_rows():
    packer = OnlinePacker(10, buffer_size=99)
    feed(packer, [2, 5, 3, 6, 4])  # oldest first: 2 + 6, then 5 + 4, then 3
    assert packer.flush() == [[3, 4], [0, 1, 2]]


def test_keys_may_be_anything_until_a_state_is_saved():
    packer = OnlinePacker(4, buffer_size=1)
    assert packer.add(("file", 1), 3) == []
    assert packer.add(None, 1) == []
    assert packer.add([1], 4) == [[("file", 1), None]]


# ---- properties

OPTIONS = st.fixed_dictionaries(
    {
        "max_length": st.sampled_from([1, 2, 7, 8, 9, 31, 32, 33, 128]),
        "buffer_size": st.integers(1, 12),
        "max_documents_per_row": st.none() | st.integers(1, 5),
        "align": st.sampled_from([1, 1, 2, 4]),
    }
).filter(lambda options: options["align"] <= options["max_length"])


@st.composite
def streams(draw: st.DrawFn) -> tuple[dict, list[int]]:
    options = draw(OPTIONS)
    usable = options["max_length"] // options["align"] * options["align"]
    near_half = st.sampled_from([usable // 2, usable // 2 + 1, usable // 3, usable, 1])
    one = st.integers(1, usable) | near_half.map(lambda n: max(1, min(n, usable)))
    return options, draw(st.lists(one, max_size=80))


def space(length: int, align: int) -> int:
    return -(-length // align) * align


@settings(max_examples=300, deadline=None)
@given(streams())
def test_every_document_leaves_once_in_a_row_that_holds_it(stream):
    options, lengths = stream
    packer = OnlinePacker(**options)
    rows = feed(packer, lengths) + packer.flush()
    assert sorted(key for row in rows for key in row) == list(range(len(lengths)))
    for row in rows:
        assert row == sorted(row)
        assert sum(space(lengths[key], options["align"]) for key in row) <= options["max_length"]
        assert 1 <= len(row) <= (options["max_documents_per_row"] or len(row))
    assert packer.num_waiting == 0


def assert_waiting_is_bounded(options: dict, lengths: list[int]) -> int:
    """The bounds of OnlinePacker's docstring, checked call by call; returns the longest wait."""
    packer = OnlinePacker(**options)
    most = options["max_length"] // options.get("align", 1)  # D, the documents that a row can hold
    most = min(most, options.get("max_documents_per_row") or most)
    bound = max(options["buffer_size"], 2 * most)  # W
    waiting: dict[int, int] = {}  # key -> rows that left before it was added
    num_rows = longest = 0
    for key, length in enumerate(lengths):
        waiting[key] = num_rows
        for row in packer.add(key, length):
            num_rows += 1
            assert row[0] == min(waiting)
            for left in row:
                assert num_rows - waiting.pop(left) <= bound
                longest = max(longest, key - left)
        assert len(waiting) == packer.num_waiting < bound
        assert not waiting or key - min(waiting) < bound * most
    assert longest <= bound * most
    return longest


@settings(max_examples=300, deadline=None)
@given(streams())
def test_the_oldest_document_always_leaves_and_none_waits_longer_than_stated(stream):
    assert_waiting_is_bounded(*stream)


def large_then_tiny(max_length: int, num_large: int) -> list[int]:
    """Large documents, each of which leaves with many tiny ones that came long after it."""
    return [max_length // 2 + 1] * num_large + [1] * (max_length * num_large)


@pytest.mark.parametrize("cap", [None, 1, 2, 5])
@pytest.mark.parametrize("buffer_size", [1, 8, 40])
@pytest.mark.parametrize(
    "lengths",
    [
        large_then_tiny(32, 40),
        [*large_then_tiny(32, 40), 16, *large_then_tiny(32, 40)],
        [17] * 300,
        [1] * 600,
        [15, 17] * 150,
        [31, 2] * 150,
        [*[16] * 50, *[32, 1] * 200],
    ],
    ids=["large-tiny", "middle", "halves", "ones", "pairs", "misfits", "full"],
)
def test_no_adversary_makes_a_document_wait_longer_than_stated(lengths, buffer_size, cap):
    options = {"max_length": 32, "buffer_size": buffer_size, "max_documents_per_row": cap}
    assert_waiting_is_bounded(options, lengths)


def test_an_adversary_can_make_a_document_wait_longer_than_the_buffer():
    """The control of the two tests above: their longest wait is not trivially the buffer."""
    options = {"max_length": 32, "buffer_size": 40, "max_documents_per_row": None}
    assert assert_waiting_is_bounded(options, large_then_tiny(32, 40)) > 40


@settings(max_examples=200, deadline=None)
@given(streams())
def test_no_document_left_in_the_buffer_fits_into_a_row_that_leaves(stream):
    options, lengths = stream
    align, cap = options["align"], options["max_documents_per_row"]
    packer = OnlinePacker(**options)
    for key, length in enumerate(lengths):
        for row in packer.add(key, length)[-1:]:
            left = options["max_length"] // align * align - sum(
                space(lengths[k], align) for k in row
            )
            still = [n for n in packer.state_dict()["spaces"] if n <= left]  # type: ignore[attr-defined]
            assert not still or len(row) == cap


@settings(max_examples=60, deadline=None)
@given(streams())
def test_a_packer_restored_at_any_step_continues_identically(stream):
    options, lengths = stream
    whole = OnlinePacker(**options)
    expected = [whole.add(key, n) for key, n in enumerate(lengths)] + [whole.flush()]
    chained = OnlinePacker(**options)
    for step in range(len(lengths) + 1):
        restored = through_json(chained)
        assert restored.state_dict() == chained.state_dict()
        rest = [restored.add(k, n) for k, n in enumerate(lengths[step:], step)]
        assert [*rest, restored.flush()] == expected[step:]
        chained = through_json(chained)  # as many restarts as steps
        if step < len(lengths):
            assert chained.add(step, lengths[step]) == expected[step]


def test_a_packer_of_realistic_size_restored_at_any_step_continues_identically():
    lengths = np.random.default_rng(3).lognormal(5, 1.2, 400).astype(int).clip(1, 1024).tolist()
    whole, chained = OnlinePacker(1024, 32), OnlinePacker(1024, 32)
    for step, length in enumerate(lengths):
        chained = through_json(chained)
        assert chained.add(str(step), length) == [
            [str(key) for key in row] for row in whole.add(step, length)
        ]
    assert [[int(key) for key in row] for row in through_json(chained).flush()] == whole.flush()


@settings(max_examples=50, deadline=None)
@given(streams())
def test_keys_do_not_influence_rows(stream):
    options, lengths = stream
    plain, named = OnlinePacker(**options), OnlinePacker(**options)
    for key, n in enumerate(lengths):
        expected = [[f"document {-k}" for k in row] for row in plain.add(key, n)]
        assert named.add(f"document {-key}", n) == expected


# ---- how full


def fill_of(packer: OnlinePacker, lengths: list[int]) -> float:
    rows = feed(packer, lengths)
    return sum(lengths[key] for row in rows for key in row) / (len(rows) * packer.max_length)


def test_a_buffer_of_64_documents_fills_web_rows_to_99_9_percent():
    lengths = np.random.default_rng(0).lognormal(6.345, 1.092, 6000).astype(int).clip(1, 4096)
    assert fill_of(OnlinePacker(4096, 64), lengths.tolist()) > 0.999
    assert fill_of(OnlinePacker(4096, 2), lengths.tolist()) < 0.99  # control


def test_small_buffers_do_not_starve_long_rows():
    lengths = np.random.default_rng(0).lognormal(4.7, 0.85, 9000).astype(int).clip(1, 32768)
    assert fill_of(OnlinePacker(32768, 16), lengths.tolist()) > 0.9999


def test_small_documents_do_not_run_out_where_two_fill_a_row():
    lengths = np.random.default_rng(0).integers(1, 2049, 6000).tolist()
    assert fill_of(OnlinePacker(2048, 256), lengths) > 0.99  # by exact fills alone: 98.9 %


def test_documents_of_half_a_row_are_paired():
    lengths = np.random.default_rng(0).normal(1024, 100, 4000).astype(int).clip(1, 2048)
    assert fill_of(OnlinePacker(2048, 1000), lengths.tolist()) > 0.99


def test_lengths_that_never_fill_a_row_exactly_come_as_close_as_they_can():
    lengths = (7 * np.random.default_rng(0).integers(1, 200, 3000)).tolist()
    assert fill_of(OnlinePacker(4096, 64), lengths) == pytest.approx(4095 / 4096)  # 4095 = 7 * 585


def test_lengths_too_similar_to_fill_a_row_are_not_searched(monkeypatch):
    searches = []
    monkeypatch.setattr(buffer, "fullest_subset", lambda *given: searches.append(given) or [])
    lengths = np.random.default_rng(0).integers(1025, 1055, 400).tolist()  # three per row
    assert {len(row) for row in feed(OnlinePacker(4096, 64), lengths)} == {3}
    assert not searches
    feed(OnlinePacker(4096, 64), [*lengths, *range(1, 400, 7)])  # control
    assert searches


def test_a_cap_that_is_reached_before_a_row_is_full_is_used_up():
    lengths = np.random.default_rng(0).integers(1, 100, 3000).tolist()
    rows = feed(OnlinePacker(1000, 64, max_documents_per_row=6), lengths)
    assert {len(row) for row in rows} == {6}


def test_a_cap_near_the_mean_is_reached_with_a_few_large_documents():
    lengths = np.random.default_rng(0).lognormal(6.345, 1.092, 6000).astype(int).clip(1, 4096)
    for buffer_size in (64, 1000):  # 4.4 fill a row on average
        packer = OnlinePacker(4096, buffer_size, max_documents_per_row=6)
        assert fill_of(packer, lengths.tolist()) > 0.995


def test_flush_leaves_at_most_one_row_half_empty():
    packer = OnlinePacker(100, buffer_size=500)
    lengths = np.random.default_rng(1).integers(1, 60, 300).tolist()
    rows = feed(packer, lengths) + packer.flush()
    assert sum(sum(lengths[key] for key in row) <= 50 for row in rows) <= 1
    assert len(rows) <= -(-sum(lengths) // 100) + 1


def test_rows_of_a_billion_tokens_are_packed_in_bounded_memory():
    lengths = np.random.default_rng(2).integers(10**8, 4 * 10**8, 200).tolist()
    assert fill_of(OnlinePacker(10**9, 64), lengths) > 0.98


# ---- bad input


@pytest.mark.parametrize("length", [0, -1, True, 1.0, "3", None, float("nan"), np.float32(2)])
def test_a_length_that_is_not_a_positive_integer_is_rejected_by_name(length):
    packer = OnlinePacker(10, buffer_size=2)
    packer.add("a", 3)
    before = packer.state_dict()
    with pytest.raises(InvalidLengths, match=r"document 'b' has length .* but a length is"):
        packer.add("b", length)
    assert packer.state_dict() == before


def test_a_document_longer_than_a_row_is_rejected_with_both_values():
    packer = OnlinePacker(10, buffer_size=2)
    packer.add("a", 10)
    before = packer.state_dict()
    with pytest.raises(
        OversizedDocument, match=r"document 'b' has 11 tokens but a row holds 10; split it"
    ):
        packer.add("b", 11)
    assert packer.state_dict() == before


def test_a_document_longer_than_a_row_after_rounding_up_is_rejected():
    packer = OnlinePacker(10, buffer_size=2, align=4)
    packer.add("a", 8)
    with pytest.raises(
        OversizedDocument,
        match=r"'b' has 9 tokens but a row holds 8 \(of max_length 10 at align=4\)",
    ):
        packer.add("b", 9)


def test_lengths_may_be_numpy_integers():
    packer = OnlinePacker(10, buffer_size=1)
    for length in (np.int64(4), np.uint8(6)):
        assert packer.add("x", length) == []
    assert json.dumps(packer.state_dict()["spaces"]) == "[4, 6]"


@pytest.mark.parametrize("name", ["max_length", "buffer_size", "max_documents_per_row", "align"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "4"])
def test_an_option_that_is_not_a_positive_integer_is_rejected(name, value):
    options = {"max_length": 8, "buffer_size": 2, name: value}
    with pytest.raises(InvalidOption, match=f"{name} is {value!r} but must be an integer >= 1"):
        OnlinePacker(**options)


def test_an_alignment_longer_than_a_row_is_rejected():
    with pytest.raises(InvalidOption, match="align=16 is more than the 8 tokens of a row"):
        OnlinePacker(8, 2, align=16)


# ---- bad states


class Number(enum.IntEnum):
    ONE = 1


@pytest.mark.parametrize("key", [("a", 1), None, 1.5, True, b"x", np.int64(1), Number.ONE])
def test_a_key_that_json_would_change_is_rejected_when_a_state_is_saved(key):
    packer = OnlinePacker(8, buffer_size=3)
    packer.add(key, 1)
    with pytest.raises(InvalidOption, match="only int and str survive JSON unchanged"):
        packer.state_dict()
    assert packer.flush() == [[key]]


SEAL = ("format", "version", "checksum")


def good_state() -> dict[str, Any]:
    packer = OnlinePacker(10, buffer_size=3, align=2)
    feed(packer, [3, 9])
    return json.loads(json.dumps(packer.state_dict()))


def load(state: Any) -> OnlinePacker:
    packer: OnlinePacker = OnlinePacker(10, buffer_size=3, align=2)
    packer.load_state_dict(state)
    return packer


def test_a_state_holds_everything_as_plain_json():
    assert good_state() == {
        "format": "quire.online",
        "version": 3,
        "max_length": 10,
        "buffer_size": 3,
        "max_documents_per_row": None,
        "align": 2,
        "keys": [0, 1],
        "spaces": [4, 10],
        "checksum": "8ec15dd7a8bbe45c737d760ffc173ba60c9d201423f81fd099db6e95d0873238",
    }


def test_a_restored_packer_has_its_options_and_its_keys():
    packer = OnlinePacker(10, buffer_size=9, max_documents_per_row=2, align=2)
    for key, length in (("a", 3), (7, 5), ("c", 2)):
        packer.add(key, length)
    restored = through_json(packer)
    assert restored.state_dict() == packer.state_dict()
    assert restored.max_documents_per_row == 2
    assert restored.flush() == [["a", 7], ["c"]]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"version": 4}, InvalidState, "version 4 but this quire reads up to 3; upgrade quire"),
        ({"version": 0}, InvalidState, "version 0 but"),
        ({"version": True}, InvalidState, "version True but"),
        ({"version": None}, InvalidState, "version None but"),
        ({"format": "quire.loader"}, InvalidState, "format is 'quire.loader', not 'quire.online'"),
        ({"more": 1}, InvalidOption, "fields .*'more'.* but must have"),
        ({"keys": [0]}, InvalidOption, "two lists of the same length"),
        ({"keys": "ab"}, InvalidOption, "two lists of the same length"),
        ({"keys": [0, None]}, InvalidOption, "key None has type NoneType"),
        ({"keys": [0, [1]]}, InvalidOption, r"key \[1\] has type list"),
        ({"spaces": [4, 12]}, OversizedDocument, "document 1 has 12 tokens but a row holds 10"),
        ({"spaces": [0, 4]}, InvalidLengths, "document 0 has length 0"),
        ({"spaces": [4, 1.0]}, InvalidLengths, "document 1 has length 1.0"),
        ({"spaces": [4, "4"]}, InvalidLengths, "document 1 has length '4'"),
        ({"max_length": 0}, InvalidState, "with max_length=0 but this packer has max_length=10;"),
        ({"buffer_size": None}, InvalidState, "with buffer_size=None but this packer has"),
        ({"align": 11}, InvalidState, "create the packer with the saved options"),
        (
            {"keys": [0, 1, 2], "spaces": [10, 10, 10]},
            InvalidOption,
            "3 documents with 30 tokens, but with buffer_size=3 and max_length=10",
        ),
    ],
)
def test_a_state_that_no_packer_returned_is_rejected(change, error, message):
    with pytest.raises(error, match=message):
        load(resealed({**good_state(), **change}))


@pytest.mark.parametrize("change", [{"keys": [0, 2]}, {"spaces": [4, 8]}, {"max_length": 12}])
def test_27_any_change_to_a_state_is_detected(change):
    with pytest.raises(InvalidState, match="it was damaged or changed; use an earlier state"):
        load({**good_state(), **change})


def test_29_a_state_of_version_1_which_had_no_checksum_is_read():
    old = {name: good_state()[name] for name in good_state() if name not in ("format", "checksum")}
    restored = load({**old, "version": 1})
    assert restored.state_dict() == good_state()
    with pytest.raises(InvalidState, match="it was damaged or changed"):
        load({**good_state(), "version": 1})


@pytest.mark.parametrize("field", sorted(good_state()))
def test_a_state_without_a_field_is_rejected(field):
    state = good_state()
    del state[field]
    with pytest.raises((InvalidState, InvalidOption), match=r"version None|format is None|has '"):
        load(state)
    with pytest.raises((InvalidState, InvalidOption), match=r"None|must have"):
        load(state if field in SEAL else resealed(state))


def test_a_rejected_state_leaves_the_packer_as_it_was():
    packer = OnlinePacker(10, buffer_size=3, align=2)
    packer.add("a", 5)
    with pytest.raises(OversizedDocument):
        packer.load_state_dict(resealed({**good_state(), "spaces": [4, 12]}))
    assert packer.flush() == [["a"]]


@pytest.mark.parametrize("state", [None, [], "{}", 1])
def test_a_state_that_is_not_a_dict_is_rejected(state):
    with pytest.raises(InvalidState, match="an online packer: a state is a dict, not a"):
        load(state)


def test_a_packer_prints_its_settings_and_what_it_holds():
    packer = OnlinePacker(max_length=8, buffer_size=4)
    packer.add("a", 3)
    assert repr(packer) == "OnlinePacker(max_length=8, buffer_size=4, 1 document held)"
