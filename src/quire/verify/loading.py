"""A transformers model from a folder on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from quire.errors import ModelError, missing_dependency, unknown_name

if TYPE_CHECKING:
    import torch

DTYPES = ("auto", "float64", "float32", "bfloat16", "float16")


def load_causal_lm(
    path: Path, dtype: str = "auto", attn_implementation: str | None = None
) -> torch.nn.Module:
    """The model of this folder, ready for training; nothing is fetched, no code of it is run."""
    if dtype not in DTYPES:
        raise unknown_name("dtype", dtype, DTYPES)
    if not (path / "config.json").is_file():
        raise ModelError(
            f"{path} holds no config.json; give the folder of a transformers model "
            "(save_pretrained writes one)"
        )
    try:
        model = _auto_model().from_pretrained(
            path,
            dtype=dtype,
            attn_implementation=attn_implementation,
            local_files_only=True,
            trust_remote_code=False,
        )
    except Exception as error:
        raise _not_loaded(path, attn_implementation, error) from error
    loaded: torch.nn.Module = model.train()
    return loaded


def _auto_model() -> Any:  # noqa: ANN401 (transformers has no types)
    try:
        from transformers import AutoModelForCausalLM
    except ImportError:
        raise missing_dependency("transformers", "loading a model", "hf") from None
    return AutoModelForCausalLM


def _not_loaded(path: Path, attn_implementation: str | None, error: Exception) -> ModelError:
    reason = next(iter(str(error).splitlines()), type(error).__name__)
    if attn_implementation is not None:
        return ModelError(
            f"{path} cannot be loaded with attn_implementation={attn_implementation!r}: {reason}; "
            "name a backend that the model has, or leave the choice to transformers"
        )
    return ModelError(f"{path} cannot be loaded: {reason}")
