"""The model while it is examined: repeatable, if need be in float32, and afterwards as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from quire.errors import ModelError
from quire.verify.layout import Batch

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


def modules_of(model: object) -> list[torch.nn.Module]:
    """All modules of the model; none of a plain callable."""
    return list(model.modules()) if isinstance(model, torch.nn.Module) else []


def is_training(model: object) -> bool:
    """Whether any part of the model is in training mode."""
    return any(module.training for module in modules_of(model))


@contextmanager
def undisturbed(model: object) -> Iterator[None]:
    """Modes, buffers (running statistics, say) and random state are put back at the end."""
    modules = modules_of(model)
    modes = [(module, module.training) for module in modules]
    buffers = [
        (module._buffers, name, buffer, buffer.clone())
        for module in modules
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices=range(torch.cuda.device_count() if used else 0)):
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
def evaluating(model: object) -> Iterator[None]:
    """The model in evaluation mode, and afterwards in the mode that it had."""
    training = [module for module in modules_of(model) if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def repeatable(model: object) -> Iterator[None]:
    """One call without chance: in training mode the seed is set, and dropout is skipped.

    Everything else that training mode changes, such as statistics over the batch, stays on. Dropout
    stays on where gradients are taken: checkpointed layers run again in the backward pass, and
    what is zero across documents is zero with dropout as well.
    """
    if not is_training(model):
        yield
        return
    torch.manual_seed(0)
    with nullcontext() if torch.is_grad_enabled() else WithoutDropout():
        yield


class WithoutDropout(TorchFunctionMode):
    """Dropout keeps everything, whichever module or function asks for it."""

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
            args, rest = args[:4], args[5:]
            return func(*args, *((0.0, *rest) if rest else ()), **_without_probability(kwargs))
        return func(*args, **kwargs)


def is_half(model: object, logits: torch.Tensor) -> bool:
    """Whether the model computes in 16 bits, where rounding is as large as many a leak."""
    parameters = model.parameters() if isinstance(model, torch.nn.Module) else ()
    return logits.dtype in HALF or any(parameter.dtype in HALF for parameter in parameters)


@contextmanager
def in_float32(model: object) -> Iterator[None]:
    """The model with the same weights in float32; ModelError if there is no room for them.

    Weights of 16 bits survive the way there and back, because their tensors are kept.
    """
    if not isinstance(model, torch.nn.Module):
        raise ModelError("only a torch module can be examined in float32")
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
            raise ModelError("there is no room for the weights in float32") from error
        finally:
            for tensor, data in zip(tensors, held, strict=True):
                tensor.data = data


def batch_in_float32(batch: Batch) -> dict[str, object]:
    """The batch with masks and other values of 16 bits in float32."""
    return {name: _in_float32(value) for name, value in batch.items()}


def _in_float32(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _in_float32(item) for name, item in value.items()}
    if isinstance(value, torch.Tensor) and value.dtype in HALF:
        return value.float()
    return value


def _without_probability(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in kwargs.items() if name != "dropout_p"}
