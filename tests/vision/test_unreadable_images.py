"""Images that the decoder rejects (fault 54) are skipped, counted and logged, or raise an error."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image, UnidentifiedImageError

from quire.errors import InvalidDocument, SourceChanged, SourceError
from quire.vision import FusionDataset, PackedVLDataset
from tests.vision.inputs import ByNumber, numbers, sample


def image_bytes(kind: str = "PNG", side: int = 64) -> bytes:
    """A picture of noise, which no format compresses well."""
    pixels = np.random.default_rng(0).integers(0, 255, (side, side, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


REFUSED = {
    "DecompressionBombError: Image size": image_bytes(side=300),
    "OSError: image file is truncated": image_bytes()[:6000],
    "OSError: image file is truncated .* bytes not": image_bytes("JPEG")[:1500],
    "UnidentifiedImageError: cannot identify image file": b"GIF no more",
    "UnidentifiedImageError: cannot identify": b"",
}


@pytest.fixture(autouse=True)
def limit_of_pixels(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 200 * 200)


class Decoding(ByNumber):
    """Opens the image of a sample when it is read, as `datasets` and processors do."""

    def __getitem__(self, number):
        given = super().__getitem__(number)
        with Image.open(io.BytesIO(given["image"])) as image:
            return {**given, "pixel_values": np.asarray(image.convert("RGB"))[None]}


class InTurn:
    """Read in order, by an iterator that continues after an error."""

    def __init__(self, items):
        self.decoding = Decoding(items)

    def __iter__(self):
        return map(self.decoding.__getitem__, range(len(self.decoding)))


class Generated(InTurn):
    """Read in order, by a generator, which ends at an error."""

    def __iter__(self):
        for number in range(len(self.decoding)):
            yield self.decoding[number]


def items(*images):
    return [sample(number, 4, image=data) for number, data in enumerate(images)]


def packed(dataset, **options):
    return PackedVLDataset(dataset, **{"packing_length": 20, "packing_drop_last": False, **options})


KNOWN = {"lengths": [4, 4, 4, 4]}
WAYS = {
    "by number": (Decoding, {}),
    "in order": (InTurn, {}),
    "planned by number": (Decoding, KNOWN),
    "planned in order": (InTurn, KNOWN),
}


@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("problem", list(REFUSED))
def test_an_image_that_pillow_rejects_is_an_error_that_names_the_sample(way, problem):
    """Fault 54: with no budget for bad samples."""
    kind, options = WAYS[way]
    given = items(image_bytes(), image_bytes("JPEG"), REFUSED[problem], image_bytes())
    message = f"sample 2 has an image that cannot be read: {problem}.*max_bad_records"
    with pytest.raises(InvalidDocument, match=message) as raised:
        list(packed(kind(given), **options))
    assert isinstance(raised.value.__cause__.__cause__, OSError | Image.DecompressionBombError)


@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("problem", list(REFUSED))
def test_an_image_that_pillow_rejects_is_quarantined_within_the_budget(way, problem, caplog):
    """Fault 54: skipped, counted, and listed by position; its pack has the others."""
    kind, options = WAYS[way]
    dataset = packed(
        kind(items(image_bytes(), REFUSED[problem], image_bytes(), image_bytes())),
        max_bad_records=1,
        **options,
    )
    with caplog.at_level(logging.WARNING, "quire.vision"):
        assert numbers(dataset) == [[0, 2, 3]]
    ledger = dataset.telemetry().ledger
    assert ledger.documents.dropped == {"bad_record": 1}
    assert ledger.tokens.dropped["bad_record"] == (4 if options else 0)  # what is known of it
    (line,) = caplog.messages
    assert line.startswith("skipped sample 1: it has an image that cannot be read: ")


def test_one_unreadable_image_more_than_the_budget_is_an_error():
    """Fault 54."""
    dataset = packed(Decoding(items(b"", image_bytes(), b"", b"")), max_bad_records=2)
    with pytest.raises(InvalidDocument, match=r"sample 3 .*after 2 bad samples were skipped"):
        list(dataset)


def test_every_skipped_bad_sample_is_logged(caplog):
    """Fault 54: every one is listed by position; the budget limits the list."""
    dataset = packed(Decoding(items(*[b""] * 50, image_bytes())), max_bad_records=50)
    with caplog.at_level(logging.WARNING, "quire.vision"):
        assert numbers(dataset) == [[50]]
    left_out = [f"skipped sample {n}: " for n in range(50)]
    assert [line[: len(head)] for line, head in zip(caplog.messages, left_out, strict=True)] == (
        left_out
    )


def test_a_generator_that_ended_at_an_image_is_an_error_and_never_a_short_epoch():
    """Fault 54: what follows would be lost silently."""
    given = items(image_bytes(), b"", image_bytes(), image_bytes())
    for options in ({}, KNOWN):
        with pytest.raises(SourceError, match=r"sample 1 has an image .*generator; use a dataset"):
            list(packed(Generated(given), max_bad_records=9, **options))


def test_ranks_count_only_unreadable_images_of_their_own_samples():
    """Fault 54: a rank skips the samples of others, even if it has to read them."""
    given = items(image_bytes(), b"", image_bytes(), image_bytes())
    for kind in (Decoding, InTurn):
        ranks = [packed(kind(given), rank=rank, world_size=2, max_bad_records=1) for rank in (0, 1)]
        assert [numbers(rank) for rank in ranks] == [[[0, 2]], [[3]]]
        dropped = [rank.telemetry().ledger.documents.dropped for rank in ranks]
        assert dropped == [{}, {"bad_record": 1}]


@pytest.mark.parametrize("kind", [Decoding, InTurn])
def test_a_run_resumes_exactly_after_an_unreadable_image(kind):
    """Fault 54: at every pack, through bytes."""
    images = [b"" if n in (1, 5, 6) else image_bytes() for n in range(12)]
    options = {"max_bad_records": 3, "packing_length": 9, "packing_buffer": 3}
    whole = packed(kind(items(*images)), **options)
    expected = numbers(whole)
    assert len(expected) > 3
    for stop in range(len(expected) + 1):
        first = packed(kind(items(*images)), **options)
        for _, _pack in zip(range(stop), first, strict=False):
            pass
        again = packed(kind(items(*images)), **options)
        again.load_state_dict(json.loads(json.dumps(first.state_dict())))
        assert numbers(again) == expected[stop:]
        assert again.telemetry().ledger == whole.telemetry().ledger


def test_a_sample_of_a_state_that_becomes_unreadable_is_a_changed_source():
    images = [image_bytes()] * 6
    options = {"packing_length": 9, "packing_buffer": 4, "max_bad_records": 9}
    dataset = packed(Decoding(items(*images)), **options)
    next(iter(dataset))
    state = dataset.state_dict()
    again = packed(Decoding(items(*images[:2], b"", *images[3:])), **options)
    again.load_state_dict(state)
    with pytest.raises(SourceChanged, match=r"sample 2 has an image .*but the state holds it"):
        list(again)


def test_an_unreadable_image_of_a_fused_dataset_is_counted_under_its_source():
    """Fault 54."""
    fused = FusionDataset(
        {"good": Decoding(items(image_bytes())), "bad": Decoding(items(b"", image_bytes()))}
    )
    dataset = packed(fused, max_bad_records=1)
    assert sum(map(len, dataset)) == 2
    ledgers = dataset.source_ledgers()
    assert ledgers["bad"].documents.dropped == {"bad_record": 1}
    assert not ledgers["good"].documents.dropped


def test_an_image_opened_by_a_measure_or_lazily_is_quarantined():
    """Fault 54: wherever the decoder is reached while a sample is packed."""

    def measure(given):
        with Image.open(io.BytesIO(given["image"])) as image:
            return {"images": 1, "patches": image.width * image.height}

    dataset = packed(
        ByNumber(items(image_bytes(), b"", image_bytes())),
        **{"measure": measure, "packing_max_patches": 10_000, "max_bad_records": 1},
    )
    assert numbers(dataset) == [[0, 2]]
    lazily = Image.open(io.BytesIO(image_bytes()[:6000]))  # it has a size, and no pixels
    given = [sample(0, 4), sample(1, 4, pixel_values=[lazily])]
    assert numbers(packed(ByNumber(given), packing_max_images=4, max_bad_records=1)) == [[0]]


def test_a_dataset_can_report_a_bad_sample_itself():
    """Fault 54: for decoders that quire does not know."""

    class Own(ByNumber):
        def __getitem__(self, number):
            if number == 1:
                raise InvalidDocument("its picture is\x1b[2J black")
            return super().__getitem__(number)

    given = items(b"", b"", b"")
    assert numbers(packed(Own(given), max_bad_records=1)) == [[0, 2]]
    with pytest.raises(InvalidDocument, match=r"sample 1 cannot be read: its picture is\\x1b\[2J"):
        list(packed(Own(given)))


def test_a_decoder_error_counts_even_if_the_dataset_wraps_it():
    class Wrapping(Decoding):
        def __getitem__(self, number):
            try:
                return super().__getitem__(number)
            except UnidentifiedImageError as error:
                raise RuntimeError(f"picture of sample {number}") from error

    assert numbers(packed(Wrapping(items(b"", image_bytes())), max_bad_records=1)) == [[1]]


class _Broken(io.BytesIO):
    def read(self, *_args):
        raise ConnectionError("the store is gone")


@pytest.mark.parametrize(
    ("kind", "fail"),
    [
        (FileNotFoundError, lambda: Image.open("no such file.png")),
        (ConnectionError, lambda: Image.open(_Broken())),
        (OSError, lambda: (_ for _ in ()).throw(OSError("a network's word"))),
        (MemoryError, lambda: Image.new("L", (2**31 - 1, 2**31 - 1))),
        (RuntimeError, lambda: (_ for _ in ()).throw(RuntimeError("a bug"))),
    ],
)
@pytest.mark.parametrize("in_order", [False, True])
def test_errors_that_are_not_about_the_image_are_raised_with_a_note_of_the_sample(
    kind, fail, in_order
):
    class Failing(ByNumber):
        def __getitem__(self, number):
            if number == 1:
                fail()
            return super().__getitem__(number)

    class FailingInTurn:
        def __iter__(self):
            return map(Failing(items(b"", b"")).__getitem__, range(2))

    dataset = FailingInTurn() if in_order else Failing(items(b"", b""))
    with pytest.raises(kind) as raised:
        list(packed(dataset, max_bad_records=9))
    assert raised.value.__notes__ == ["while reading sample 1"]


def test_packing_imports_no_decoder():
    script = (
        "import sys; from quire.vision import PackedVLDataset\n"
        "list(PackedVLDataset([{'length': 3}], packing_length=8, packing_drop_last=False))\n"
        "sys.exit('PIL' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
