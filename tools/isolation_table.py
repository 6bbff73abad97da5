"""Which architectures keep packed documents apart: verdicts compared with an independent truth.

`python -m tools.isolation_table` writes docs/guides/architectures.md. Models are tiny and random.
The truth is computed in float64 without quire.verify: other documents' logits when one changes,
each document's logits alone, and gradients from document to document.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tools.architectures import SETTINGS, VOCABULARY, build

from quire.collate import DataCollatorForCausalLM
from quire.errors import ModelError
from quire.verify import check_isolation

PAGE = Path(__file__).parents[1] / "docs" / "guides" / "architectures.md"
BACKENDS = ("eager", "sdpa")
DTYPES = (torch.float32, torch.bfloat16)
LENGTHS = ((7, 5, 1, 6), (9, 8))
DOCUMENTS = [
    (row, int(start), int(start) + length)
    for row, lengths in enumerate(LENGTHS)
    for start, length in zip(np.cumsum((0, *lengths[:-1])), lengths, strict=True)
]
REAL = 1e-5
"""Relative to the largest logit. Models with a float32 softmax round at 1e-7 even in float64."""
HEAD = """# Which models keep documents apart

`DataCollatorForCausalLM(tokenizer)` makes a batch that transformers itself splits into documents,
from `position_ids` that restart. Most architectures do that. Some ignore `position_ids` when they
make their masks, and state-space layers have no masks. With `model=model`, the collator tries the
forms in a fixed order on that model, takes the first one that is isolated, and raises a
`ModelError` if there is none.

Made by `python -m tools.isolation_table` with transformers {transformers} and torch {torch}, on
tiny random models in evaluation mode. The truth is computed in float64, independently of the check:
by changing documents, running them alone, and taking gradients. `noise` counts as isolated: bits
differ within rounding, as in grouped experts. {count} cases, {wrong} verdicts that contradict the
truth.

"""


class Tokenizer:
    """The special tokens that a collator needs."""

    bos_token_id, eos_token_id, pad_token_id = 1, 2, 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One architecture on one backend."""

    name: str
    backend: str
    truth: str
    """Of the default batch: isolated, leak or altered."""
    default: dict[str, str]
    """The check's verdict on it, by dtype."""
    chosen: dict[str, str]
    """The form that `model=` chose, by dtype; `refused` if none."""
    chosen_truth: dict[str, str]
    chosen_verdict: dict[str, str]

    @property
    def false_verdicts(self) -> list[str]:
        """The verdicts that contradict the truth."""
        found = [
            f"{self.name} {self.backend} {dtype}: {verdict}, but it is {self.truth}"
            for dtype, verdict in self.default.items()
            if verdict.replace("noise", "isolated") != self.truth
        ]
        for dtype, form in self.chosen.items():
            if form == "refused":
                wrong = self.truth == "isolated"
            else:
                wrong = self.chosen_truth[dtype] != "isolated"
                wrong |= self.chosen_verdict[dtype] not in ("isolated", "noise")
            if wrong:
                found.append(f"{self.name} {self.backend} {dtype}: chosen {form}")
        return found

    def cells(self) -> list[str]:
        """The cells of the table."""
        forms = set(self.chosen.values())
        form = forms.pop() if len(forms) == 1 else str(self.chosen)
        return [self.name, self.backend, self.truth, *self.default.values(), form]


def rows() -> list[dict[str, Any]]:
    """Two packed rows, the second of which is padded."""
    generator = np.random.default_rng(0)
    return [
        {
            "input_ids": generator.integers(3, VOCABULARY, sum(lengths)),
            "document_starts": np.cumsum((0, *lengths[:-1])),
        }
        for lengths in LENGTHS
    ]


def lines(names: Sequence[str] = tuple(SETTINGS)) -> Iterator[Line]:
    """The lines of these architectures, on each backend that they have."""
    for name in names:
        for backend in BACKENDS:
            line = examine(name, backend)
            if line is not None:
                yield line


def examine(name: str, backend: str) -> Line | None:
    """One line; None if the architecture lacks the backend."""
    plain = DataCollatorForCausalLM(Tokenizer())
    line = Line(
        name=name,
        backend=backend,
        truth="",
        default={},
        chosen={},
        chosen_truth={},
        chosen_verdict={},
    )
    for dtype in DTYPES:
        model, key = build(name, backend, dtype), str(dtype).removeprefix("torch.")
        if model is None:
            return None
        line.default[key] = check_isolation(model, dict(plain(rows()))).verdict
        try:
            chosen = DataCollatorForCausalLM(Tokenizer(), model=model)
        except ModelError:
            line.chosen[key] = "refused"
            continue
        line.chosen[key] = _form(chosen)
        line.chosen_truth[key] = truth(name, backend, chosen)
        line.chosen_verdict[key] = (
            line.default[key]
            if chosen.attention == "transformers"
            else check_isolation(model, dict(chosen(rows()))).verdict
        )
    object.__setattr__(line, "truth", truth(name, backend, plain))
    return line


def _form(collator: DataCollatorForCausalLM) -> str:
    windows = "" if collator.windows is None else ", `windows` by layer"
    return f"`{collator.attention}`{windows}"


# ---- the truth, in float64


def truth(name: str, backend: str, collator: DataCollatorForCausalLM) -> str:
    """What this call does to documents: isolated, leak or altered."""
    model = build(name, backend, torch.float64, experts_implementation="batched_mm")
    batch = {key: _doubled(value) for key, value in collator(rows()).items() if key != "labels"}
    with torch.no_grad():
        base = model(**batch).logits
        scale = REAL * float(base.abs().max())
        if _largest_move(model, batch, base) > scale:
            return "leak"
        distances = [
            (_alone(model, batch, document) - base[_place(document)]).abs().max()
            for document in DOCUMENTS
        ]
    if _crossing_gradient(model, batch):
        return "leak"
    return "altered" if max(distances) > scale else "isolated"


def _place(document: tuple[int, int, int]) -> tuple[int, slice]:
    row, start, stop = document
    return row, slice(start, stop)


def _largest_move(model: Any, batch: dict[str, Any], base: torch.Tensor) -> float:
    largest = 0.0
    for document in DOCUMENTS:
        ids = batch["input_ids"].clone()
        ids[_place(document)] = (ids[_place(document)] - 3 + 7) % (VOCABULARY - 3) + 3
        moved = (model(**{**batch, "input_ids": ids}).logits - base).abs()
        others = [moved[_place(other)].max() for other in DOCUMENTS if other != document]
        largest = max(largest, float(max(others)))
    return largest


def _alone(model: Any, batch: dict[str, Any], document: tuple[int, int, int]) -> torch.Tensor:
    row, start, stop = document
    return model(input_ids=batch["input_ids"][row : row + 1, start:stop], use_cache=False).logits[0]


def _crossing_gradient(model: Any, batch: dict[str, Any]) -> bool:
    taps: list[torch.Tensor] = []

    def tap(module: object, arguments: object, output: torch.Tensor) -> torch.Tensor:
        taps.append(output.detach().requires_grad_())
        return taps[-1]

    handle = model.get_input_embeddings().register_forward_hook(tap)
    try:
        logits = model(**batch).logits
    finally:
        handle.remove()
    for document in DOCUMENTS:
        [gradient] = torch.autograd.grad(
            logits[_place(document)].square().sum(), taps[:1], retain_graph=True
        )
        if any(gradient[_place(other)].any() for other in DOCUMENTS if other != document):
            return True
    return False


def _doubled(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _doubled(item) for name, item in value.items()}
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.double()
    return value


# ---- the page


def page(found: Sequence[Line]) -> str:
    """The page of these lines."""
    header = ["architecture", "attention", "truth", "float32", "bfloat16", "form with `model=`"]
    table = [header, ["---"] * len(header), *(line.cells() for line in found)]
    head = HEAD.format(
        transformers=transformers.__version__,
        torch=torch.__version__.partition("+")[0],
        count=sum(len(line.default) + len(line.chosen) for line in found),
        wrong=sum(len(line.false_verdicts) for line in found),
    )
    return head + "\n".join(f"| {' | '.join(cells)} |" for cells in table) + "\n"


def main() -> None:
    """Check all architectures and write the page; SystemExit if a verdict is false."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    found = []
    for line in lines():
        found.append(line)
        print(*line.cells(), *line.false_verdicts, sep="  ", flush=True)
    PAGE.write_text(page(found), encoding="utf-8")
    wrong = [text for line in found for text in line.false_verdicts]
    print(f"{len(found)} lines, {len(wrong)} false verdicts; wrote {PAGE}")
    if wrong:
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    main()
