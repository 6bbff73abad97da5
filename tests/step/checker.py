"""The guarantees of `pack_step`, checked without its code: plain lists, one rule after another."""

from __future__ import annotations

from collections import Counter, defaultdict


def violations(lengths, plan, **options) -> list[str]:
    """What is wrong with a plan for these lengths and options; empty if nothing is."""
    ranks, steps = options.get("num_ranks", 1), plan.num_micro_steps
    rows = {}
    for rank in range(ranks):
        for step in range(steps):
            piece = plan.pieces(rank, step)
            columns = plan.documents[piece], plan.starts[piece], plan.stops[piece]
            rows[rank, step] = list(zip(*(column.tolist() for column in columns), strict=True))
    lengths = [int(length) for length in lengths]
    kept = _kept(lengths, plan, options)
    return [
        *_counts(plan, rows, ranks, steps, options),
        *_once(lengths, rows, kept),
        *_budgets(lengths, plan, rows, options),
        *_together(rows, options),
        *_kinds(rows, steps, ranks, options),
        *_ledger(lengths, plan, rows, kept),
    ]


def _kept(lengths, plan, options):
    """Sequences that must be in rows; a row group or a group that is too large is dropped whole."""
    kept = {n for n, length in enumerate(lengths) if length}
    if options.get("overlong") != "drop":
        return kept
    space, align = row_space(options), options.get("align", 1)
    for n in list(kept):
        over = any(sizes[n] > limit for sizes, limit in (options.get("budgets") or {}).values())
        if lengths[n] > space or over:
            kept.discard(n)
    groups = options.get("groups")
    share = options.get("groups_share", "row")
    if groups is not None and share != "rank":
        members = defaultdict(list)
        for n in kept:
            members[(n,) if groups[n] is None else (groups[n], "group")].append(n)
        for group in members.values():
            used = sum(-(-lengths[n] // align) * align for n in group)
            if share == "row":
                over = any(
                    sum(int(sizes[n]) for n in group) > limit
                    for sizes, limit in (options.get("budgets") or {}).values()
                )
                if used > space or over:
                    kept -= set(group)
            # What takes half of a micro-step or less always fits into it.
            elif (
                used * 2 > space * options.get("num_ranks", 1) or options.get("budgets")
            ) and not set(group) & set(plan.documents.tolist()):
                kept -= set(group)
    return kept


def row_space(options):
    shapes = options.get("shapes")
    multiple = options.get("align_rows", 1)
    largest = options["max_length"] // multiple * multiple
    if shapes is not None and not isinstance(shapes, int):
        largest = max(shapes)
    align = options.get("align", 1)
    return largest // align * align


def _counts(plan, rows, ranks, steps, options):
    multiple, least = options.get("micro_steps_multiple_of", 1), options.get("min_micro_steps", 1)
    if steps % multiple or steps < least or steps < plan.lower_bound:
        yield f"{steps} micro-steps, multiple {multiple}, least {least}, bound {plan.lower_bound}"
    if plan.row_lengths.shape != (ranks, steps) or len(rows) != ranks * steps:
        yield "not every rank has the same number of rows"
    dummies = sorted(map(tuple, plan.dummies.tolist()))
    if dummies != sorted(key for key, row in rows.items() if not row):
        yield "dummies are not named"


def _once(lengths, rows, kept):
    pieces = defaultdict(list)
    for row in rows.values():
        for document, start, stop in row:
            pieces[document].append((start, stop))
    if set(pieces) != kept:
        yield f"sequences {sorted(set(pieces) ^ kept)} are kept or dropped against the options"
    for document, parts in pieces.items():
        parts.sort()
        edges = [0, *(stop for _, stop in parts)]
        if [start for start, _ in parts] != edges[:-1] or edges[-1] != lengths[document]:
            yield f"sequence {document} of {lengths[document]} is in pieces {parts}"


def _budgets(lengths, plan, rows, options):
    align, multiple = options.get("align", 1), options.get("align_rows", 1)
    used_shapes = set()
    for (rank, step), row in rows.items():
        length = int(plan.row_lengths[rank, step])
        if row:
            used_shapes.add(length)
        used = sum(-(-(stop - start) // align) * align for _, start, stop in row)
        if not used <= length <= options["max_length"] or length < 1:
            yield f"row {rank, step} of {length} holds {used} of {options['max_length']}"
        if length % multiple:
            yield f"row {rank, step} of {length} is not a multiple of {multiple}"
        for name, (sizes, limit) in (options.get("budgets") or {}).items():
            taken = sum(int(sizes[document]) for document, start, _ in row if start == 0)
            if taken > limit:
                yield f"row {rank, step} has {taken} {name} of {limit}"
    shapes = options.get("shapes")
    if isinstance(shapes, int) and len(set(plan.row_lengths.ravel().tolist())) > shapes:
        yield f"{len(used_shapes)} shapes but at most {shapes}"
    if shapes is not None and not isinstance(shapes, int) and not used_shapes <= set(shapes):
        yield f"shapes {used_shapes} but {shapes} are allowed"


def _together(rows, options):
    groups = options.get("groups")
    if groups is None:
        return
    share = options.get("groups_share", "row")
    places = defaultdict(set)
    for (rank, step), row in rows.items():
        where = {"row": (rank, step), "rank": rank, "micro_step": step}[share]
        for document, _, _ in row:
            if groups[document] is not None:
                places[groups[document]].add(where)
    for group, where in places.items():
        if len(where) > 1:
            yield f"group {group} does not share a {share}: {where}"


def _kinds(rows, steps, ranks, options):
    kinds = options.get("kinds")
    for step in range(steps) if kinds is not None else ():
        found = {kinds[d] for rank in range(ranks) for d, _, _ in rows[rank, step]}
        if len(found) > 1:
            yield f"micro-step {step} has kinds {found}"


def _ledger(lengths, plan, rows, kept):
    documents, tokens = plan.ledger.documents, plan.ledger.tokens
    placed = {d for row in rows.values() for d, _, _ in row}
    in_rows = sum(stop - start for row in rows.values() for _, start, stop in row)
    dropped = [n for n in range(len(lengths)) if n not in kept]
    expected = Counter(documents=len(lengths), emitted=len(placed), tokens=in_rows)
    if expected != Counter(
        documents=documents.input, emitted=documents.emitted, tokens=tokens.emitted
    ):
        yield f"the ledger {documents} does not count {expected}"
    if sum(documents.dropped.values()) != len(dropped):
        yield f"the ledger drops {documents.dropped}, not {dropped}"
    if sum(tokens.dropped.values()) != sum(lengths[n] for n in dropped):
        yield f"the ledger drops {tokens.dropped}"
    if tokens.padding != int(plan.row_lengths.sum()) - in_rows:
        yield f"the ledger counts {tokens.padding} padding"
