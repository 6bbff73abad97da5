"""The part of all targets that a model in training predicts, over all datasets together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


class TokenAccuracy:
    """Counts targets and those that were predicted, of every forward pass with labels.

    Counts stay on the device of the model until they are taken.
    """

    def __init__(self) -> None:
        self._counts: torch.Tensor | None = None
        self._handle: Any = None

    def watch(self, model: torch.nn.Module) -> None:
        """Count what this model predicts from now on, while it trains."""
        self.release()
        self._handle = model.register_forward_hook(self._count, with_kwargs=True)

    def release(self) -> None:
        """Count no longer."""
        if self._handle is not None:
            self._handle.remove()
        self._handle = self._counts = None

    def take(self) -> float | None:
        """The accuracy since it was last taken; None if there was no target."""
        counts, self._counts = self._counts, None
        if counts is None:
            return None
        predicted, targets = counts.tolist()
        return predicted / targets if targets else None

    def _count(
        self, model: torch.nn.Module, positional: object, given: Mapping[str, Any], output: object
    ) -> None:
        labels, logits = given.get("labels"), getattr(output, "logits", None)
        if not model.training or labels is None or logits is None or logits.ndim != 3:
            return
        if logits.shape[1] != labels.shape[1]:
            return  # a loss that keeps some of the logits only
        with torch.no_grad():
            wanted = labels[:, 1:]
            is_target = wanted != -100
            right = (logits[:, :-1].argmax(dim=-1) == wanted) & is_target
            counts = torch.stack([right.sum(), is_target.sum()])
        self._counts = counts if self._counts is None else self._counts + counts
