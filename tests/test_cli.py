"""The command line as users see it: in a terminal, in a pipe, and with mistakes."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer

import quire
from quire.cli.app import COMMANDS, app
from quire.errors import InvalidOption
from quire.plan.strategies import BUILT_IN
from tests.commands import run
from tests.terminal import shown_in_terminal

QUIRE = [sys.executable, "-m", "quire"]
NAMED = "import sys; sys.argv[0] = 'quire'; from quire.cli.app import main; main()"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    for name, size in (("a", 10), ("b", 30), ("c", 0), ("d", 5)):
        (tmp_path / f"{name}.txt").write_text("x" * size)
    return tmp_path


def in_terminal(*arguments: str) -> str:
    return shown_in_terminal([*QUIRE, *arguments])


def demo(corpus: Path, out: Path) -> list[str]:
    here = ["--corpus", str(corpus), "--pattern", "*.txt", "--out", str(out)]
    return ["demo", *here, "--max-length", "16"]


def test_demo_plans_a_folder_with_every_strategy(corpus, tmp_path_factory):
    done = run(*demo(corpus, tmp_path_factory.mktemp("out")))
    assert done.returncode == 0, done.stderr
    assert "4 files" in done.stdout
    assert "45 tokens" in done.stdout
    for strategy in BUILT_IN:
        assert strategy in done.stdout
    row = next(line for line in done.stdout.splitlines() if "best_fit" in line and "split" in line)
    assert re.findall(r"[\d.,]+%?", row)[:3] == ["3", "3", "93.750%"]
    assert "\x1b[" not in done.stdout, "no colours in a pipe"


def test_demo_packs_recounts_and_shows_rows_and_finds_them_again(corpus, tmp_path_factory):
    (corpus / "e.txt").write_bytes(b"caf\xe9")
    out = tmp_path_factory.mktemp("out")
    first = run(*demo(corpus, out))
    assert first.returncode == 0, first.stderr
    packed = out / f"{corpus.name}-16"
    assert f"$ quire pack {out / corpus.name}.jsonl --out {packed}" in first.stdout
    assert f"{str(packed)!r} is complete" in first.stdout
    assert "dropped as bad_record: 1 document" in first.stdout
    assert "whole: 1 shard, 4 rows" in first.stdout
    assert re.search(r"row \d+: .* tokens, 2 fragments", first.stdout)
    assert "'a.txt', token 0" in first.stdout
    assert f"manifest   {packed / 'manifest.json'}" in first.stdout
    assert f"report     {packed}.html" in first.stdout
    assert "<html" in Path(f"{packed}.html").read_text(encoding="utf-8")
    again = run(*demo(corpus, out))
    assert again.returncode == 0, again.stderr
    assert f"{str(packed)!r} was already complete" in again.stdout
    command = re.search(r"^\$ quire (verify .*--inputs .*)$", again.stdout, flags=re.MULTILINE)[1]
    checked = run(*shlex.split(command))
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.slow
def test_demo_needs_only_the_base_install(corpus, tmp_path_factory):
    extras = ["torch", "transformers", "datasets", "jax", "ray", "scipy", "jinja2", "PIL", "polars"]
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({extras!r})); "
        "from quire.cli.app import main; main()"
    )
    arguments = demo(corpus, tmp_path_factory.mktemp("out"))
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "whole: 1 shard" in done.stdout
    assert "needs scipy, which is not installed" in done.stdout


@pytest.mark.slow
def test_demo_shows_colours_in_a_terminal(corpus, tmp_path_factory):
    shown = in_terminal(*demo(corpus, tmp_path_factory.mktemp("out")))
    assert "\x1b[1m" in shown
    assert "best_fit" in shown


def test_a_mistake_is_one_line_without_a_traceback(corpus):
    done = run("demo", "--corpus", str(corpus), "--pattern", "*.nothing")
    assert done.returncode == 2
    assert "has no file that matches '*.nothing'; change --pattern" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_command_that_is_misspelled_gets_the_nearest_one():
    done = run("pakc", "corpus")
    assert done.returncode == 2
    assert "unknown command 'pakc'; did you mean 'pack'? known: bench-model, demo," in done.stderr


def test_debug_shows_the_traceback():
    done = run("--debug", "demo", "--max-length", "0")
    assert "Traceback" in done.stderr
    assert "max_length is 0" in done.stderr.replace("--max-length", "max_length")


def test_the_version_is_that_of_the_package():
    import quire

    assert run("--version").stdout.strip() == f"quire {quire.__version__}"


@pytest.mark.slow
def test_a_process_prints_and_ends_as_in_this_one():
    for words in (["--version"], ["plan", "--help"], ["verify", "nowhere"], ["pack"]):
        command = [sys.executable, "-c", NAMED, *words]
        there = subprocess.run(command, capture_output=True, text=True, check=False)
        here = run(*words)
        assert (there.returncode, there.stdout) == (here.returncode, here.stdout)
        assert there.stderr == here.stderr


def test_every_command_explains_itself_with_an_example():
    listing = run("--help").stdout
    commands = re.findall(r"^  ([a-z][a-z-]*)  ", listing, flags=re.MULTILINE)
    assert {"demo", "verify-model"} <= set(commands)
    for command in commands:
        shown = run(command, "--help")
        assert shown.returncode == 0
        assert f"Example: quire {command}" in shown.stdout


def test_help_pages_show_every_option_in_full_in_a_terminal_of_80_columns():
    commands = typer.main.get_command(app).commands
    for name, command in commands.items():
        page = run(name, "--help", COLUMNS="80").stdout
        options = [option for one in command.params for option in one.opts if option[0] == "-"]
        assert all(option in page for option in options), name
        assert max(map(len, page.splitlines())) <= 80, name


def test_the_list_of_commands_is_not_cut_in_a_terminal_of_80_columns():
    page = run("--help", COLUMNS="80").stdout
    assert "Prove that a model keeps packed documents apart." in page
    assert "..." not in page.replace("[ARGS]...", "")


def test_control_characters_in_an_error_are_escaped(tmp_path):
    done = run("demo", "--corpus", str(tmp_path), "--pattern", "\x1b[31m*.nothing")
    assert done.returncode == 2
    assert "\x1b" not in done.stderr
    assert "\\x1b[31m" in done.stderr


@pytest.mark.parametrize("place", [0, 1, 3])
def test_debug_shows_the_traceback_wherever_it_is_given(tmp_path, place):
    words = ["verify", str(tmp_path), "--json"]
    words.insert(place, "--debug")
    done = run(*words)
    assert "Traceback" in done.stderr
    assert "No such option" not in done.stderr
    assert "Traceback" not in run("verify", str(tmp_path), "--json").stderr


def test_commands_are_listed_in_the_order_of_use_without_importing_them():
    """Their modules take most of a second; each says what the list says."""
    code = (
        "import sys; from quire.cli.app import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([name for name in ('numpy', 'pyarrow', 'transformers') if name in sys.modules])"
    )
    command = [sys.executable, "-c", code, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    listed = re.findall(r"^  ([a-z-]+)  +[A-Z]", done.stdout, flags=re.MULTILINE)
    assert [name for name in listed if name in COMMANDS] == [*COMMANDS]
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("name", COMMANDS)
def test_what_the_list_says_of_a_command_is_the_first_line_of_its_help(name):
    text = " ".join(run(name, "--help").stdout.split())
    assert COMMANDS[name][1] in text


def test_the_common_options_come_first_and_have_the_types_that_people_write():
    lines = run("pack", "--help").stdout.splitlines()
    panels = [line.rstrip(":") for line in lines if re.fullmatch(r"[A-Z][a-z ]+:", line)]
    assert panels == [
        "Arguments", "Common options", "Input", "Tokens", "Packing", "Output", "Running"
    ]  # fmt: skip
    common = lines[lines.index("Common options:") : lines.index("Input:")]
    assert any("--max-length N" in line for line in common)
    assert len(common) <= 30
    assert not [line for line in lines if "<int" in line or "<str" in line]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--max-length", "8", "--align", "9"], "--align 9 is more than the 8 tokens of a row"),
        (["--max-length", "4", "--stride", "3"], "raise --max-length"),
        (["--max-length", "8", "--overlong", "fill", "--min-fragment", "9"],
         "lower --min-fragment"),
        (["--max-length", "8"], "that is bad record 1 and --max-bad-records is 0"),
        (["--max-length", "8", "--record-kind", "instruction"], "use --record-kind text"),
        (["--max-length", "8", "--record-kind", "text", "--messages-column", "m"],
         "--record-kind text has no --messages-column"),
        (["--max-length", "8", "--column", "labels"], "only for tokens (--pretokenized)"),
    ],
)  # fmt: skip
def test_errors_of_commands_use_the_words_of_commands(tmp_path, arguments, problem):
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "a"}\n{"text": 5}\n')
    done = run("pack", file, "--out", tmp_path / "out", "--tokenizer", "byte", *arguments)
    assert done.returncode == 2
    assert problem in done.stderr


def test_the_words_of_commands_end_with_the_command():
    run("pack", "nowhere", "--out", "out", "--max-length", "0")
    with pytest.raises(InvalidOption, match=r"^max_length is 0"):
        quire.pack_dataset([{"text": "a"}], "byte", max_length=0)


def test_a_command_says_what_kind_of_records_it_recognized(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text('{"prompt": "a", "completion": "b"}\n')
    options = ("--out", tmp_path / "out", "--tokenizer", "byte", "--max-length", "8")
    done = run("pack", file, *options)
    assert done.stderr.splitlines()[0] == (
        "recognized from the first records: prompts and completions "
        "(--record-kind prompt_completion)"
    )


def test_a_shell_is_offered_strategies_tokenizers_and_plans(tmp_path, monkeypatch):
    from quire.cli.options import (
        plans_to_complete,
        strategies_to_complete,
        tokenizers_to_complete,
    )

    assert strategies_to_complete("best") == ["best_fit"]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "big").mkdir()
    (tmp_path / "b.txt").write_text("text")
    assert tokenizers_to_complete("b") == ["byte", "big"]
    options = ("--out", "out", "--tokenizer", "byte", "--max-length", "8", "--index-only")
    assert run("pack", "b.txt", *options).returncode == 0
    context = SimpleNamespace(params={"path": "out"})
    assert plans_to_complete(context, "exact") == ["exact_fit-8"]


def test_options_are_checked_before_a_model_is_loaded(tmp_path):
    pytest.importorskip("torch")
    done = run("verify-model", tmp_path, "--attention", "foo")
    assert "unknown attention 'foo'" in done.stderr
