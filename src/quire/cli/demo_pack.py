"""The second half of `quire demo`: the corpus packed, recounted and looked into."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

import typer
from rich.console import Console

from quire.files import whole_file

console = Console()
_ROWS_SHOWN, _DOCUMENTS_SHOWN, _TEXT_SHOWN = 3, 4, 48


class DemoPack:
    """A corpus of files in a folder of the demo's own, and the steps that are done with it.

    Every step prints the command line that does the same. A step more is a method more, named in
    `run`.
    """

    def __init__(self, folder: Path, name: str, max_length: int) -> None:
        self._max_length = max_length
        self._corpus = folder / f"{name}.jsonl"
        self._out = folder / f"{name}-{max_length}"
        self._page = folder / f"{name}-{max_length}.html"
        self._files: list[str] = []
        self._num_unreadable = 0

    def run(self, root: Path, files: Sequence[Path]) -> None:
        """Do all steps, one after the other."""
        self.write_corpus(root, files)
        self.pack()
        self.verify()
        self.show_rows()
        self.report()
        self.say_what_is_where()

    def write_corpus(self, root: Path, files: Sequence[Path]) -> None:
        """One line a file; a file that is no UTF-8 becomes a record without text."""
        self._corpus.parent.mkdir(parents=True, exist_ok=True)
        (self._corpus.parent / ".gitignore").write_text("*\n", encoding="utf-8")
        with (
            whole_file(self._corpus) as temporary,
            temporary.open("w", encoding="utf-8", newline="\n") as lines,
        ):
            for file in files:
                name, text = file.relative_to(root).as_posix(), _text(file)
                self._files.append(name)
                self._num_unreadable += text is None
                lines.write(json.dumps({"text": text, "file": name}) + "\n")
        _say(f"\n{self._corpus} holds the files, one a line")
        if self._num_unreadable:
            _say(f"{self._num_unreadable} of them are not UTF-8: they will be left out and listed")

    def pack(self) -> None:
        """Pack the corpus, or find it packed."""
        from quire.cli.pack import print_result
        from quire.cli.pack_progress import PackProgress
        from quire.corpus import pack_corpus

        options = f"--tokenizer byte --max-length {self._max_length} --resume"
        bad = f" --max-bad-records {self._num_unreadable}" if self._num_unreadable else ""
        _say_command(f"pack {_quoted(self._corpus)} --out {_quoted(self._out)} {options}{bad}")
        with PackProgress(self._max_length) as display:
            result = pack_corpus(
                [self._corpus],
                self._out,
                "byte",
                max_length=self._max_length,
                resume=True,
                max_bad_records=self._num_unreadable,
                on_start=display.start,
                on_progress=display.advance,
            )
        print_result(result, as_json=False)

    def verify(self) -> None:
        """Recount it with code that shares nothing with the writer."""
        from quire.cli.verify import print_report
        from quire.verify.output import verify_output

        _say_command(f"verify {_quoted(self._out)}")
        report = verify_output(self._out)
        print_report(report)
        if not report.ok:
            raise typer.Exit(1)

    def show_rows(self) -> None:
        """The first rows: which files stand in them, from which token on, and how they begin."""
        from quire.packed import PackedDataset
        from quire.text import ByteTokenizer

        _say_command(f"PackedDataset({str(self._out)!r})", prompt=">>> quire.")
        columns = ["input_ids", "document_starts", "document_ids", "document_offsets"]
        rows = PackedDataset(self._out, columns=columns)
        decode: Callable[[list[int]], str] = ByteTokenizer().decode
        # Rows of several documents show more; long documents fill most rows alone.
        several = (n for n in range(len(rows)) if len(rows[n]["document_starts"]) > 1)
        shown = list(islice(several, _ROWS_SHOWN)) or range(min(_ROWS_SHOWN, len(rows)))
        for number in shown:
            row = {name: values.tolist() for name, values in rows[number].items()}
            starts = row["document_starts"]
            _say(f"row {number}: {len(row['input_ids']):,} tokens, fragments: {len(starts)}")
            sources = zip(starts, row["document_ids"], row["document_offsets"], strict=True)
            for start, document, offset in list(sources)[:_DOCUMENTS_SHOWN]:
                text = decode(row["input_ids"][start : start + 2 * _TEXT_SHOWN])[:_TEXT_SHOWN]
                place = f"{self._files[document]!r}, token {offset:,}"
                _say(f"  at {start:>6,}  {place:<48} {text!r}")
            if len(starts) > _DOCUMENTS_SHOWN:
                _say(f"  and {len(starts) - _DOCUMENTS_SHOWN} more")

    def report(self) -> None:
        """Write the page that shows it."""
        from quire.cli.report import report

        _say_command(f"report {_quoted(self._out)} --out {_quoted(self._page)}")
        report(str(self._out), out=self._page)

    def say_what_is_where(self) -> None:
        """The files that were written, and what to try next."""
        _say("")
        _say(f"shards     {self._out / 'data'}: datasets, polars and pyarrow open it as it is")
        _say(f"manifest   {self._out / 'manifest.json'}: options, checksums, what became of it all")
        _say(f"report     {self._page}: open it in a browser")
        if self._num_unreadable:
            _say(f"left out   {self._out / 'bad_records.jsonl'}: where and why")
        inputs = f"--inputs {_quoted(self._corpus)} --tokenizer byte"
        _say("try next:")
        _say_command(f"verify {_quoted(self._out)} {inputs}")
        other = _quoted(self._out.with_name(f"{self._out.name}-index"))
        more = f"--tokenizer byte --max-length {self._max_length} --index-only"
        bad = f" --max-bad-records {self._num_unreadable}" if self._num_unreadable else ""
        _say_command(f"pack {_quoted(self._corpus)} --out {other} {more}{bad}")
        _say_command(f"replan {other} --max-length {2 * self._max_length}")


def _text(file: Path) -> str | None:
    try:
        return file.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        return None


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


def _say(line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _say_command(line: str, prompt: str = "$ quire ") -> None:
    console.print(prompt + line, style="bold cyan", markup=False, highlight=False, soft_wrap=True)
