"""Grids of images, computed from their sizes as the image processor of a model will make them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quire.errors import InvalidOption
from quire.formats.record_kinds import RecordProblem

CONFIG = "preprocessor_config.json"
_MOST_ELONGATED = 200
_KNOWN = ("Qwen2VL", "Qwen3VL")
"""How the names of the image processors begin that resize so."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GridRule:
    """How Qwen's image processors resize: to multiples of a block, within limits of pixels."""

    patch_size: int
    merge_size: int
    least_pixels: int
    most_pixels: int

    @classmethod
    def of_folder(cls, folder: Path) -> GridRule:
        """The rule in the ``preprocessor_config.json`` of a model."""
        path = folder / CONFIG
        try:
            config = json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise InvalidOption(
                f"{path} cannot be read ({error}); messages with images need the folder of a model "
                "with its tokenizer and its image processor, or pack samples that a processor "
                "encoded (input_ids and image_grid_thw)"
            ) from error
        return cls.of_config(config, path)

    @classmethod
    def of_config(cls, config: Mapping[str, Any], path: object = CONFIG) -> GridRule:
        """The rule in the content of such a file."""
        name = str(config.get("image_processor_type", ""))
        if not name.startswith(_KNOWN):
            raise InvalidOption(
                f"{path} describes a {name or 'processor without a name'}, but grids are computed "
                f"only for those of Qwen-VL ({', '.join(_KNOWN)}); encode the samples with your "
                "processor, and pack input_ids and image_grid_thw"
            )
        size = config.get("size") or {}
        numbers = {
            "patch_size": config.get("patch_size", 14),
            "merge_size": config.get("merge_size", 2),
            "least_pixels": config.get("min_pixels") or size.get("shortest_edge"),
            "most_pixels": config.get("max_pixels") or size.get("longest_edge"),
        }
        for key, value in numbers.items():
            if type(value) is not int or value < 1:
                raise InvalidOption(f"{path} has {value!r:.40} for {key} but must have an integer")
        return cls(**numbers)

    def grid(self, height: int, width: int) -> list[int]:
        """Time, height and width in patches of an image of this many pixels.

        >>> rule = GridRule(patch_size=14, merge_size=2, least_pixels=3136, most_pixels=1003520)
        >>> rule.grid(200, 300), rule.grid(20, 20)
        ([1, 14, 22], [1, 4, 4])
        """
        if max(height, width) > _MOST_ELONGATED * min(height, width):
            raise RecordProblem(
                f"has an image of {width} x {height} pixels, which is too elongated"
            )
        block = self.patch_size * self.merge_size
        sides = [round(side / block) * block for side in (height, width)]
        pixels = sides[0] * sides[1]
        if pixels > self.most_pixels:
            ratio = math.sqrt(height * width / self.most_pixels)
            sides = [max(block, math.floor(s / ratio / block) * block) for s in (height, width)]
        elif pixels < self.least_pixels:
            ratio = math.sqrt(self.least_pixels / (height * width))
            sides = [math.ceil(s * ratio / block) * block for s in (height, width)]
        return [1, *(side // self.patch_size for side in sides)]
