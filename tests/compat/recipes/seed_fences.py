"""The code fences of the documents that quire implements, and recipes of the same forms."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SEEDS = Path(__file__).resolve().parents[3].parent / "shared" / "seeds"
HERE = SEEDS.is_dir()
"""Whether the documents are next to the project; a plain clone has only the recipes below."""

GREEDY = """\
[map_function]
.define: &map_function !partial:forgather.ml.datasets:block_tokenize_fn
    max_length: 1024
    overflow: True
    stride: 32
    packed: True
    packing_strategy: "greedy"
    min_len: 4
"""
SHUFFLED = """\
-- extends "types/training_script/causal_lm/causal_lm.yaml"

[map_function]
.define: &map_function !partial:forgather.ml.datasets:block_tokenize_fn
    max_length: 512
    overflow: False  # cut off what a row does not hold
    packed: True
    packing_strategy: "best_fit"
    shuffle_output: True
    seed: 7
"""
PREPROCESSED = """\
-- extends "types/training_script/causal_lm/causal_lm.yaml"

-- block datasets_preprocessor_args
datasets_preprocessor_args: !dict
    max_length: 2048
    overflow: True
    packed: True
    packing_strategy: "first_fit"
-- endblock datasets_preprocessor_args

-- block datacollator
datacollator: !partial:forgather.ml.data_collator:DataCollatorForCausalLM
    max_length: 2048
    return_tensors: "pt"
-- endblock datacollator
"""
ANCHORED = """\
[map_function]
.define: &map_function !partial:forgather.ml.datasets:block_tokenize_fn
    tokenizer: *tokenizer
    max_length: 2048
    overflow: True
    packed: True
    packing_strategy: "best_fit"
    seed: !var { name: "seed", default: 11 }

[train_dataset]
    == super()
    map_fn: *map_function
    batched: True
    batch_size: 500
    num_proc: 4

[data_collator]
.define: &data_collator !singleton:forgather.ml.data_collator:DataCollatorForCausalLM
    tokenizer: *tokenizer
    packed_sequences: True
"""
OPTIONS = """\
overflow: True
packing_strategy: "first_fit"  # only some options
"""
OWN = {
    "greedy": GREEDY,
    "shuffled": SHUFFLED,
    "preprocessed": PREPROCESSED,
    "anchored": ANCHORED,
    "options": OPTIONS,
}


def fences(seed: str, language: str) -> list[str]:
    """The fences of one seed and language, in order; none where the seeds are absent."""
    return [
        text
        for file in sorted(SEEDS.glob(f"{seed}_*.txt"))
        for text in re.findall(
            rf"^```{language}\n(.*?)^```", file.read_text("utf-8"), re.MULTILINE | re.DOTALL
        )
    ]


def recipes() -> list:
    """The recipes above, then every YAML fence of seeds 000 and 001."""
    return [pytest.param(text, id=name) for name, text in OWN.items()] + [
        pytest.param(text, id=f"{seed}-{number}")
        for seed in ("000", "001")
        for number, text in enumerate(fences(seed, "yaml"))
    ]
