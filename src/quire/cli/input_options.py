"""Options that say what the inputs are, shared by the commands that read a corpus."""

from __future__ import annotations

from typing import Annotated

import typer

Inputs = Annotated[
    list[str],
    typer.Argument(
        help="Files, globs or folders of jsonl or ndjson (.gz, .zst), parquet, arrow, txt (a "
        "document a file), or a dataset that save_to_disk wrote; paths, or URIs such as s3://bucket/folder."
    ),
]
TokenizerName = Annotated[
    str | None, typer.Option(help="'byte', a tokenizer.json, or a folder that has one.")
]
TextKey = Annotated[str, typer.Option(help="The field that holds the text.")]
MessagesKey = Annotated[str | None, typer.Option(help="The field that holds a conversation.")]
ToolsKey = Annotated[
    str,
    typer.Option(help="The field that holds the tools of a conversation; '' leaves them out."),
]
AssistantOnly = Annotated[
    bool, typer.Option(help="Of conversations, train what the assistant says alone.")
]
ChatDate = Annotated[
    str | None,
    typer.Option(
        help="The date, such as 2026-11-18, for chat templates that ask for one.",
        show_default="today's, as recorded by the first run",
    ),
]
Pretokenized = Annotated[
    bool,
    typer.Option("--pretokenized", help="Records hold tokens; recognised without --tokenizer."),
]
TokensKey = Annotated[str, typer.Option(help="The field that holds the tokens.")]
Column = Annotated[
    list[str] | None, typer.Option(help="A per-token column beside input_ids; may be repeated.")
]
Stride = Annotated[int, typer.Option(help="Tokens repeated where a document is cut.")]
MinLen = Annotated[int, typer.Option(help="Drop rows with fewer tokens.")]
MaxLen = Annotated[int | None, typer.Option(help="Drop documents with more tokens.")]
MaxDocumentsPerRow = Annotated[int | None, typer.Option(help="The most fragments in a row.")]
AddBos = Annotated[
    bool | None,
    typer.Option(
        help="Open every fragment with BOS.", show_default="if the tokenizer itself adds it"
    ),
]
AddEos = Annotated[bool, typer.Option(help="Close every document with EOS.")]
TruncateAt = Annotated[
    str | None, typer.Option(help="Cut texts before the first match of this expression.")
]
MaxRecordBytes = Annotated[str, typer.Option(help="A longer record is a bad one.")]
MaxBadRecords = Annotated[
    int, typer.Option(help="Bad records to leave out and list before it is an error.")
]
