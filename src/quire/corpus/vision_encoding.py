"""Encode samples with images: tokens with a placeholder for every merged patch, and references.

Every image is read once, hashed and decoded, so that damaged ones are found before training. Its
bytes are not kept, unless the record itself holds them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quire.corpus.encoding import Encoder
from quire.corpus.image_grids import GridRule
from quire.corpus.options import CorpusOptions
from quire.documents import Documents, Media, StoredImage
from quire.errors import InvalidOption, SourceError
from quire.formats.bad_records import BadRecords
from quire.formats.files import InputFile
from quire.formats.format import Batch
from quire.formats.images import ImageFacts, ImageReference, image_facts, read_image
from quire.formats.record_kinds import Conversation, RecordProblem
from quire.formats.token_columns import TOKENS, as_documents
from quire.formats.vision_records import IMAGE_TAG, TYPES, VisionSample
from quire.options.names import option
from quire.text import TokenizerLike
from quire.text.samples import SampleEncoder, encode_samples

IGNORE = -100
IMAGE_PAD = "<|image_pad|>"
_SHOWN = f"<|vision_start|>{IMAGE_PAD}<|vision_end|>"
"""How Qwen-VL's chat templates write an image."""
Ints = npt.NDArray[np.int64]
Columns = dict[str, Ints]


class VisionEncoder(Encoder):
    """Samples that a processor encoded, or conversations that ``chat`` encodes."""

    def __init__(
        self,
        options: CorpusOptions,
        *,
        folder: Path | None,
        image_token_id: int | None,
        chat: SampleEncoder | None = None,
        grid_rule: GridRule | None = None,
    ) -> None:
        super().__init__()
        self._options, self._folder = options, folder
        self._image_token_id, self._chat, self._rule = image_token_id, chat, grid_rule
        self._merge = options.merge_size if grid_rule is None else grid_rule.merge_size

    def _encode(self, batch: Batch, file: InputFile, bad: BadRecords) -> Documents:
        samples = cast(list[VisionSample], batch.values)
        folder = self._folder or Path(str(file.path)).parent
        facts = self._facts(samples, folder, bad, file)
        given = self._tokens(samples, bad)
        found: list[tuple[Columns, Ints]] = []
        for number, sample in enumerate(samples):
            try:
                if number not in given or facts[number] is None:
                    raise RecordProblem("")
                found.append(self._encoded(sample, given[number], facts[number] or []))
            except RecordProblem as problem:
                if str(problem):
                    bad.add(number, str(problem))
                found.append((_no_tokens(), np.zeros((0, 3), np.int64)))
        documents = _documents([columns for columns, _ in found], bad)
        return replace(documents, media=_media(documents, samples, facts, found, folder))

    def _no_documents(self) -> Documents:
        return replace(_documents([], BadRecords(0)), media=_no_media())

    def _facts(
        self, samples: Sequence[VisionSample], folder: Path, bad: BadRecords, file: InputFile
    ) -> list[list[ImageFacts] | None]:
        """What every image of every sample is like; None for a sample with one that is not."""

        def read(image: ImageReference) -> ImageFacts | RecordProblem:
            try:
                return image_facts(read_image(image, folder), self._options.max_image_pixels)
            except RecordProblem as problem:
                return problem
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError, ValueError):
                return RecordProblem("has an image whose file does not exist")
            except OSError as error:
                raise SourceError(
                    f"{folder / str(image.path)} cannot be read: {error.strerror or error}; "
                    "committed shards are kept: fix the cause, then resume"
                ) from error

        every: list[list[ImageFacts] | None] = []
        with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
            for number, sample in enumerate(samples):
                found = list(threads.map(read, sample.images))
                problem = next((one for one in found if isinstance(one, RecordProblem)), None)
                if problem is not None:
                    bad.add(number, str(problem))
                every.append(None if problem is not None else cast(list[ImageFacts], found))
        return every

    def _tokens(self, samples: Sequence[VisionSample], bad: BadRecords) -> dict[int, Columns]:
        """Tokens and labels of every good sample, with one placeholder for each image of a
        conversation."""
        if self._chat is None:
            columns = [cast(Mapping[str, list[int]], sample.content) for sample in samples]
            return {n: _as_arrays(one) for n, one in enumerate(columns) if bad.good[n]}
        shown = [_with_placeholders(cast(Conversation, sample.content)) for sample in samples]
        good = [one if ok else None for one, ok in zip(shown, bad.good, strict=True)]
        rendered = encode_samples(good, self._chat, bad, lambda e: str(e).partition(":")[0])
        flat = {
            name: column.to_numpy().astype(np.int64) for name, column in rendered.columns.items()
        }
        return {
            number: {name: values[start : start + length] for name, values in flat.items()}
            for number, start, length in zip(
                rendered.numbers.tolist(),
                rendered.offsets.tolist(),
                rendered.lengths.tolist(),
                strict=True,
            )
        }

    def _encoded(
        self, sample: VisionSample, columns: Columns, facts: Sequence[ImageFacts]
    ) -> tuple[Columns, Ints]:
        """The columns of a sample and the grids of its images, which agree; or `RecordProblem`."""
        grids = self._grids(sample, facts)
        sizes = grids.prod(axis=1) // self._merge**2
        ids = columns[TOKENS]
        if len(ids) and ids.min() < 0:
            raise RecordProblem(f"has the negative token id {ids.min()}")
        types = self._types(columns, has_images=len(grids) > 0)
        if self._chat is not None:
            if (found := int(types.sum())) != len(sizes):
                raise RecordProblem(f"has {found} placeholders but {len(sizes)} images")
            repeats = np.ones(len(ids), dtype=np.int64)
            repeats[types == 1] = sizes
            columns = {name: np.repeat(values, repeats) for name, values in columns.items()}
            ids, types = columns[TOKENS], np.repeat(types, repeats)
        if (found := int(types.sum())) != sizes.sum():
            raise RecordProblem(
                f"has {found} image placeholders in {TOKENS} but its images need {sizes.sum()}"
            )
        labels = np.where(types == 1, IGNORE, columns.get("labels", ids))
        return {TOKENS: ids, "labels": labels, TYPES: types}, grids

    def _grids(self, sample: VisionSample, facts: Sequence[ImageFacts]) -> Ints:
        given = sample.grids
        if given is None and self._rule is not None:
            given = [self._rule.grid(fact.height, fact.width) for fact in facts]
        if given is None and facts:
            raise RecordProblem("has images but no image_grid_thw, which its processor returns")
        grids = np.array(given or [], dtype=np.int64).reshape(-1, 3)
        if (grids[:, 1:] % self._merge).any():
            raise RecordProblem(
                f"has an image_grid_thw that is not a multiple of merge_size {self._merge}"
            )
        return grids

    def _types(self, columns: Columns, *, has_images: bool) -> Ints:
        """1 at placeholders of images; by their id, or as given."""
        given, token_id = columns.get(TYPES), self._image_token_id
        if given is not None and not np.isin(given, (0, 1)).all():
            raise RecordProblem(f"has {TYPES} other than 0 and 1; only images are packed on disk")
        if token_id is not None:
            found: Ints = (columns[TOKENS] == token_id).astype(np.int64)
            if given is not None and not np.array_equal(found, given):
                raise RecordProblem(f"has {TYPES} that are not where the token {token_id} is")
            return found
        if given is None and has_images:
            raise InvalidOption(
                "samples have images, but the id of their placeholder is not known; set "
                f"{option('image_token_id')}, name the model's tokenizer, or give {TYPES}"
            )
        return np.zeros(len(columns[TOKENS]), np.int64) if given is None else given


def image_token_of(tokenizer: TokenizerLike | None) -> int | None:
    """The id of ``<|image_pad|>``, if the tokenizer has that token."""
    convert = getattr(tokenizer, "convert_tokens_to_ids", None)
    unknown = getattr(tokenizer, "unk_token_id", None)
    found = convert(IMAGE_PAD) if callable(convert) else None
    return found if isinstance(found, int) and found != unknown else None


def _with_placeholders(conversation: Conversation) -> Conversation:
    messages = [_with_placeholder(message) for message in conversation.messages]
    return conversation._replace(messages=messages)


def _with_placeholder(message: Any) -> Any:  # noqa: ANN401 - a JSON value
    content = message.get("content") if isinstance(message, Mapping) else None
    if not isinstance(content, str):
        return message
    return {**message, "content": content.replace(IMAGE_TAG, _SHOWN)}


def _as_arrays(columns: Mapping[str, list[int]]) -> Columns:
    return {name: np.array(values, dtype=np.int64) for name, values in columns.items()}


def _no_tokens() -> Columns:
    return {name: np.zeros(0, np.int64) for name in (TOKENS, "labels", TYPES)}


def _documents(samples: Sequence[Columns], bad: BadRecords) -> Documents:
    every = [*samples, _no_tokens()]
    kinds = {TOKENS: pa.int32(), "labels": pa.int32(), TYPES: pa.int8()}
    flat = {
        name: pa.array(np.concatenate([one[name] for one in every])).cast(kind)
        for name, kind in kinds.items()
    }
    lengths = np.array([len(one[TOKENS]) for one in samples], dtype=np.int64)
    return as_documents(flat, lengths, bad)


def _no_media() -> Media:
    none = np.zeros(0, np.int64)
    return Media(numbers=none, counts=none, grids=np.zeros((0, 3), np.int64), images=[])


def _media(
    documents: Documents,
    samples: Sequence[VisionSample],
    facts: Sequence[list[ImageFacts] | None],
    found: Sequence[tuple[Columns, Ints]],
    folder: Path,
) -> Media:
    kept = documents.numbers.tolist()
    images = [
        StoredImage(
            image.path, image.data, fact.sha256, fact.num_bytes, str(folder / str(image.path))
        )
        for number in kept
        for image, fact in zip(samples[number].images, facts[number] or [], strict=True)
    ]
    grids = [found[number][1] for number in kept]
    return Media(
        numbers=documents.numbers,
        counts=np.array([len(one) for one in grids], dtype=np.int64),
        grids=np.concatenate([*grids, np.zeros((0, 3), np.int64)]),
        images=images,
    )
