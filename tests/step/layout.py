"""What a plan says about its rows, and where it puts values, checked without its code."""

from __future__ import annotations

import numpy as np


def layout_violations(lengths, plan, **options) -> list[str]:
    """What is wrong with rows, their order, their costs and the weights of the loss."""
    lengths, align = [int(length) for length in lengths], options.get("align", 1)
    begins = [sum(lengths[:n]) for n in range(len(lengths))]
    tokens, wrong = np.arange(1, sum(lengths) + 1), []
    costs = np.zeros((plan.num_ranks, plan.num_micro_steps))
    weights = {over: plan.loss_weights(over) for over in ("tokens", "sequences")}
    loss = dict.fromkeys(weights, 0.0)
    for rank, step in np.ndindex(costs.shape):
        piece = plan.pieces(rank, step)
        row = zip(*(part[piece].tolist() for part in _columns(plan)), strict=True)
        expected = _row(row, begins, align, int(plan.row_lengths[rank, step]))
        found = {
            "values": plan.gather(tokens, rank, step, per="token"),
            "positions": plan.position_ids(rank, step),
            "segments": plan.segment_ids(rank, step),
            "ends": plan.cu_seqlens(rank, step),
            "ends with padding": plan.cu_seqlens_padded(rank, step),
        }
        for name, values in found.items():
            if values.tolist() != expected[name]:
                wrong.append(f"row {rank, step} has {name} {values}, not {expected[name]}")
        costs[rank, step] = sum(_cost(n, options["cost"]) for n in np.diff(expected["ends"]))
        for over, values in weights.items():
            loss[over] += float(plan.gather(values, rank, step, per="token").sum())
    if not np.allclose(costs, plan.costs, rtol=1e-12):
        wrong.append(f"costs are {costs}, not {plan.costs}")
    if plan.num_tokens and not np.allclose(list(loss.values()), 1):
        wrong.append(f"weights of the loss sum to {loss}")
    return wrong + _order(costs.max(axis=0), options["order"])


def _columns(plan):
    return plan.documents, plan.starts, plan.stops


def _row(pieces, begins, align, length):
    """What a row holds, token by token."""
    row = {"values": [], "positions": [], "segments": [], "ends": [0], "ends with padding": [0]}
    for number, (document, start, stop) in enumerate(pieces, 1):
        space, begin = -(-(stop - start) // align) * align, begins[document] + 1
        padding = [0] * (space - stop + start)
        row["values"] += [*range(begin + start, begin + stop), *padding]
        row["positions"] += range(space)
        row["segments"] += [number] * (stop - start) + padding
        row["ends"].append(row["ends"][-1] + stop - start)
        row["ends with padding"].append(len(row["values"]))
    rest = length - len(row["values"])
    row["values"] += [0] * rest
    row["positions"] += range(rest)
    row["segments"] += [0] * rest
    row["ends with padding"] += [length] if rest else []
    return row


def _cost(length, cost):
    if callable(cost):
        return float(cost(np.array(length)))
    if isinstance(cost, dict):
        hidden, layers = cost["hidden_size"], cost["num_hidden_layers"]
        return layers * (32 * hidden**2 * length + 2 * hidden * length**2)
    linear, quadratic = cost or (1, 2e-5)
    return linear * length + quadratic * length**2


def _order(most, order):
    """Largest first; or rising to the largest and falling after it."""
    peak = 0 if order == "largest_first" else int(most.argmax())
    rises, falls = np.diff(most[: peak + 1]), np.diff(most[peak:])
    slack = 1e-9 * max(1, most.max())
    if (rises < -slack).any() or (falls > slack).any():
        return [f"micro-steps cost {most} in the order {order}"]
    return []
