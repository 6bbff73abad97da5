"""What can go wrong, by number, and how quire handles it, for docs/reliability.md."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """One fault and the behaviour that its tests check."""

    fault: str
    behaviour: str


@dataclass(frozen=True)
class Chapter:
    """Faults of one kind, numbered consecutively."""

    title: str
    first: int
    lines: tuple[Line, ...]


_LEFT_OUT = "skipped, counted and listed by position, up to `max_bad_records`; then an error"

CHAPTERS = (
    Chapter(
        "Input",
        1,
        (
            Line("The last line of a jsonl file is cut off", f"{_LEFT_OUT}, with its byte offset"),
            Line("A line in the middle is not JSON", _LEFT_OUT),
            Line("Bytes that are not UTF-8", f"{_LEFT_OUT}; never replaced"),
            Line("BOM, CRLF, U+2028 or NUL in a text", "lines end only at `\\n`, content is kept"),
            Line("Half a surrogate pair", _LEFT_OUT),
            Line("The text is null, a number or missing", f'{_LEFT_OUT}; never `"None"`'),
            Line("A document without a token", "counted as `empty`"),
            Line("No document has a token", "an output without rows, and a warning"),
            Line("A document of one token", "kept; it has no target"),
            Line("Lengths of k rows, and one more or less", "exact, by policy"),
            Line("A document of ten million tokens", "split, in bounded memory"),
            Line("A record over `max_record_bytes`", _LEFT_OUT),
            Line("Deeply nested JSON", _LEFT_OUT),
            Line("Duplicate keys, Infinity, endless digits", _LEFT_OUT),
            Line("A token id outside the vocabulary", "an error; never wrapped around"),
            Line("`document_starts` that are out of order or range", "an error; never repaired"),
            Line("`input_ids` and `labels` of different lengths", _LEFT_OUT),
            Line("PAD is EOS, no BOS, EOS inside a text", "boundaries come only from lengths"),
            Line("Images and placeholders disagree", f"{_LEFT_OUT}; an image is never cut"),
            Line("A parquet file with a damaged footer or page", "an error that names the file"),
            Line("Arrow arrays that are sliced, chunked or hold nulls", "the same rows"),
            Line("Files that disagree about their columns", "an error"),
            Line("An input changes while it is packed", "an error"),
            Line("The same file is named twice", "an error"),
            Line("A file without a record", "fine"),
            Line("Row lengths at and next to powers of two", "all pack alike"),
        ),
    ),
    Chapter(
        "State and configuration",
        27,
        (
            Line("A state that is cut off or has a changed bit", "an error, by its checksum"),
            Line("A changed state with a checksum that fits", "an error, by its fields and bounds"),
            Line("A state of another version", "newer: an error; older: converted"),
            Line("Other options than at the start", "an error with the fields that differ"),
            Line("Another tokenizer", "an error, by its files and by the ids of probe texts"),
            Line("Another number of ranks", "exact where promised, else an error"),
            Line("Other workers or prefetch", "exact"),
            Line("Saved before the first batch, after the last, twice", "exact"),
            Line("States of ranks at different steps", "an error"),
            Line("Saved around the end of an epoch", "exact"),
        ),
    ),
    Chapter(
        "Process and disk",
        37,
        (
            Line("Killed while a shard is written", "run again: the same bytes, no extra file"),
            Line(
                "Killed between a shard and its manifest",
                "a complete shard is recognized by its hash",
            ),
            Line("The disk is full, fails, or takes half a write", "an error; resumable"),
            Line("The output cannot be written", "an error before any work"),
            Line("SIGINT or SIGTERM", "what is committed stays; exit code 130 or 143"),
            Line("A worker is killed or out of memory", "replaced, or an error; never a hang"),
            Line("A worker raises", "its traceback, and the record"),
            Line(
                "Two writers on one output",
                "the second is refused; a dead writer's lock is taken over",
            ),
            Line("A corpus larger than memory", "memory depends on partitions, not on the corpus"),
            Line("Hash seed, locale, order of a folder, workers", "the same bytes"),
            Line("A worker, node or driver of a Ray cluster dies", "retried: the same bytes"),
        ),
    ),
    Chapter(
        "Remote",
        48,
        (
            Line("Time-outs, refusals, broken connections", "retried, then an error"),
            Line("What is read again differs", "an error; never a shorter or longer epoch"),
        ),
    ),
    Chapter(
        "Hostile",
        50,
        (
            Line("A pickle as state, manifest or data", "refused; never loaded"),
            Line("Tags in YAML", "names of a closed table; a file cannot import anything"),
            Line("A manifest whose paths lead elsewhere", "an error"),
            Line("A decompression bomb", "a limit, then an error"),
            Line(
                "An image bomb",
                "a grid is compared with its pixels, never made; an image that Pillow refuses is "
                f"{_LEFT_OUT} that names the sample",
            ),
            Line("A tokenizer that needs its own code", "refused, unless passed as an object"),
            Line("Control characters and markup in names and texts", "escaped; never run"),
        ),
    ),
)


def numbered() -> dict[int, Line]:
    """All lines by their numbers.

    >>> numbered()[40].fault
    'The output cannot be written'
    """
    return {
        number: line
        for chapter in CHAPTERS
        for number, line in enumerate(chapter.lines, start=chapter.first)
    }
