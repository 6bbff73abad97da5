"""The model under the check: what its config says, and its mode and precision meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, TypeAlias

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from quire.errors import ModelError
from quire.masks.dense import Windows
from quire.verify.isolation.documents import Batch

Model: TypeAlias = Callable[..., object]
HALF = (torch.bfloat16, torch.float16)
DROPOUTS = {
    torch.dropout,
    torch.dropout_,
    torch.alpha_dropout,
    torch.feature_dropout,
    functional.dropout,
    functional.dropout1d,
    functional.dropout2d,
    functional.dropout3d,
    functional.alpha_dropout,
    functional.feature_alpha_dropout,
}


def text_config(model: object) -> object | None:
    """The config of the language model, which vision-language models keep inside their own."""
    config = getattr(model, "config", None)
    get_text_config = getattr(config, "get_text_config", None)
    return get_text_config() if callable(get_text_config) else config


def attention_backend(model: object) -> str | None:
    """The name of a transformers model's attention implementation; None for other callables."""
    name = getattr(getattr(model, "config", None), "_attn_implementation", None)
    return name if isinstance(name, str) else None


def uses_cache(model: object) -> bool:
    """Whether a call makes a cache unless it says otherwise."""
    return bool(getattr(text_config(model), "use_cache", False))


def sliding_windows(model: object) -> Windows:
    """The model's sliding window: none, one for all layers, or one for each type of layer."""
    config = text_config(model)
    window = getattr(config, "sliding_window", None)
    types = getattr(config, "layer_types", None)
    if not isinstance(window, int) or isinstance(window, bool):
        return None
    if not isinstance(types, list | tuple):
        return window
    if "sliding_attention" not in types:
        return None
    return {kind: window if kind == "sliding_attention" else None for kind in sorted(set(types))}


def longest_window(windows: Windows) -> int | None:
    """The largest of the windows."""
    if isinstance(windows, Mapping):
        return max((window for window in windows.values() if window is not None), default=None)
    return windows


def is_training(model: object) -> bool:
    """Whether any part of the model is in training mode."""
    return any(module.training for module in _modules(model))


@contextmanager
def restored(model: object) -> Iterator[None]:
    """Restore modes, buffers (running statistics, for example) and random state at the end."""
    modules = _modules(model)
    modes = [(module, module.training) for module in modules]
    buffers = [
        (module._buffers, name, buffer, buffer.clone())
        for module in modules
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    on_gpu = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices=range(torch.cuda.device_count() if on_gpu else 0)):
        try:
            yield
        finally:
            for module, training in modes:
                module.training = training
            for held, name, buffer, copy in buffers:
                with torch.no_grad():
                    buffer.copy_(copy)
                held[name] = buffer


@contextmanager
def deterministic(model: object) -> Iterator[None]:
    """Make one call reproducible: in training mode, fix the seed and skip dropout.

    Everything else that training mode changes, such as statistics over the batch, stays on. Dropout
    stays on where gradients are taken: checkpointed layers run again in the backward pass, and
    what is zero across documents is zero with dropout as well.
    """
    if not is_training(model):
        yield
        return
    torch.manual_seed(0)
    with nullcontext() if torch.is_grad_enabled() else _WithoutDropout():
        yield


def is_half(model: object, logits: torch.Tensor) -> bool:
    """Whether the model computes in 16 bits, where rounding can be as large as a leak."""
    parameters = model.parameters() if isinstance(model, torch.nn.Module) else ()
    return logits.dtype in HALF or any(parameter.dtype in HALF for parameter in parameters)


@contextmanager
def in_float32(model: object) -> Iterator[None]:
    """The same weights in float32; ModelError if there is not enough memory for them.

    The original tensors are kept and put back, so the weights do not change.
    """
    if not isinstance(model, torch.nn.Module):
        raise ModelError("only a torch module can be checked in float32")
    tensors = [
        tensor
        for tensor in (*model.parameters(), *model.buffers())
        if tensor.dtype in HALF
    ]  # fmt: skip
    held = [tensor.data for tensor in tensors]
    with ExitStack() as stack:
        for kind in {parameter.device.type for parameter in model.parameters()}:
            stack.enter_context(torch.autocast(kind, enabled=False))
        try:
            for tensor in tensors:
                tensor.data = tensor.data.float()
            yield
        except (torch.OutOfMemoryError, MemoryError) as error:
            raise ModelError("there is not enough memory for the weights in float32") from error
        finally:
            for tensor, data in zip(tensors, held, strict=True):
                tensor.data = data


def batch_in_float32(batch: Batch) -> Batch:
    """The batch with 16-bit masks and other values in float32."""
    return map_tensors(batch, lambda values: values.float() if values.dtype in HALF else values)


def map_tensors(batch: Batch, change: Callable[[torch.Tensor], torch.Tensor]) -> Batch:
    """The batch with every tensor changed, also those in mappings (a mask for each layer type)."""
    return {name: _mapped(value, change) for name, value in batch.items()}


def _modules(model: object) -> list[torch.nn.Module]:
    return list(model.modules()) if isinstance(model, torch.nn.Module) else []


def _mapped(value: object, change: Callable[[torch.Tensor], torch.Tensor]) -> object:
    if isinstance(value, Mapping):
        return map_tensors(value, change)
    return change(value) if isinstance(value, torch.Tensor) else value


class _WithoutDropout(TorchFunctionMode):
    """Dropout keeps everything, whichever module or function calls it."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 (whatever the function returns)
        """The function's result, as if dropout had probability zero."""
        kwargs = dict(kwargs or {})
        if func in DROPOUTS:
            return args[0] if args else kwargs["input"]
        if func is functional.scaled_dot_product_attention:
            kwargs.pop("dropout_p", None)
            args = (*args[:4], 0.0, *args[5:]) if len(args) > 4 else args
        return func(*args, **kwargs)
