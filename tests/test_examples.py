"""Every example runs, says that documents are isolated, and its losses are those of training."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import quire

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"

pytestmark = pytest.mark.filterwarnings("ignore")  # of libraries that are not ours to mend


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs an example in this process, which has loaded torch; returns its output."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)

    def run_example(name: str, *arguments: str) -> str:
        monkeypatch.syspath_prepend(str(EXAMPLES))
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    yield run_example
    torch.set_num_threads(threads)


def losses(output: str) -> list[float]:
    return [float(number) for number in re.findall(r"loss'?:? '?(\d+\.\d+)", output)]


def test_the_pytorch_loop_is_isolated_and_learns(run):
    output = run("pytorch_loop.py")
    assert "documents in a row of a batch: isolated" in output
    first, last = losses(output)
    assert 1 < last < first < 5.56  # ln 259 is the loss of knowing nothing


def test_updates_on_packed_rollouts_are_those_of_one_rollout_at_a_time(run):
    output = run("grpo_step.py")
    assert output.endswith("packed and unpacked updates are the same\n")


@pytest.mark.parametrize("name", ["transformers_trainer.py", "trl_sft.py"])
def test_the_batch_of_a_trainer_is_isolated_and_it_learns(run, name):
    output = run(name)
    assert "documents in a row of a batch: isolated" in output
    logged = losses(output)[:-1]
    assert 1 < logged[-1] < logged[0] < 6


def test_the_trainer_trains_on_what_the_command_packed(run, tmp_path):
    texts = [f"{n}: " + "a few words " * (n % 17) for n in range(200)]
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    quire.pack_corpus([corpus], tmp_path / "packed", "byte", max_length=512)
    output = run("transformers_trainer.py", str(tmp_path / "packed"))
    assert "documents in a row of a batch: isolated" in output
    assert losses(output)[-1] < 5.6


def test_documents_are_proven_apart_though_the_first_rows_hold_one_each(run, tmp_path):
    texts = ["long " * 24] * 9 + ["short"] * 40
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    quire.pack_corpus([corpus], tmp_path / "packed", "byte", max_length=128, strategy="greedy")
    output = run("pytorch_loop.py", str(tmp_path / "packed"), "--max-steps", "2")
    assert "documents in a row of a batch: isolated" in output
    assert len(losses(output)) == 2
    assert len(set(losses(output))) == 1  # no step of the second epoch


@pytest.mark.parametrize("name", ["pytorch_loop.py", "transformers_trainer.py", "trl_sft.py"])
def test_rows_of_any_tokenizer_are_trained_on(run, tmp_path, name):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    end = "<eos>"
    words = {word: 1000 + n for n, word in enumerate(("a", "few", "words"))}
    plain = Tokenizer(models.WordLevel({**words, end: 0}, unk_token=end))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=plain, eos_token=end).save_pretrained(tmp_path)
    texts = ["a few words " * (n % 17 + 1) for n in range(60)]
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    quire.pack_corpus([corpus], tmp_path / "packed", tmp_path, max_length=64)
    given = (str(tmp_path / "packed"), "--tokenizer", str(tmp_path), "--epochs", "1")
    output = run(name, *given)
    assert "isolated" in output
    assert re.search(r"curve \d\.\d\d [▁▂▃▄▅▆▇█]+ \d\.\d\d", output)


def test_rows_of_an_unnamed_tokenizer_are_refused_with_what_to_add(run, tmp_path, capsys):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(json.dumps({"input_ids": [5, 1000]}) + "\n")
    quire.pack_corpus([corpus], tmp_path / "packed", max_length=8)
    with pytest.raises(SystemExit):
        run("pytorch_loop.py", str(tmp_path / "packed"))
    assert "add --tokenizer" in capsys.readouterr().err


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_every_example_has_a_help(example, run, capsys):
    if example.name in ("standard_library.py", "source_texts.py"):
        return  # what others import
    with pytest.raises(SystemExit):
        run(example.name, "--help")
    assert "usage:" in capsys.readouterr().out


def test_the_check_of_kernels_writes_a_report(run, tmp_path, capsys):
    out = tmp_path / "report.json"
    with pytest.raises(SystemExit) as ended:
        run(
            "gpu_check.py",
            "--device",
            "cpu",
            "--size",
            "32",
            "--max-length",
            "32",
            "--out",
            str(out),
        )
    report = json.loads(out.read_text())
    assert ended.value.code == 0 and report["passed"]
    assert "passed   eager" in capsys.readouterr().out
    assert {one["outcome"] for one in report["results"]} == {"passed", "skipped"}


def digest(output: str) -> str:
    return re.search(r"parameters after step \d+: (\w+)", output).group(1)


@pytest.mark.parametrize("name", ["jax_training.py", "stream_pytorch.py"])
def test_a_run_that_is_resumed_in_a_new_process_trains_the_same_bits(run, name, tmp_path):
    whole = run(name, "--steps", "6")
    left = run(name, "--steps", "6", "--stop-after", "3", "--folder", str(tmp_path))
    done = subprocess.run(
        [
            sys.executable,
            str(EXAMPLES / name),
            "--steps",
            "6",
            "--folder",
            str(tmp_path),
            "--resume",
        ],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "", "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"},
    )
    assert "resumed after step 3" in done.stdout
    assert digest(done.stdout) == digest(whole)
    assert losses(left) + losses(done.stdout) == losses(whole)
    assert digest(left) != digest(whole)  # a control: three steps more do change the bits
    assert losses(whole)[-1] < losses(whole)[0] < 5.7  # ln 259 is 5.56
    if name == "jax_training.py":
        assert "compiled 1 time(s), for batches of (2, 2, 256)" in done.stdout
    else:
        assert "documents in the first microbatch: isolated" in whole


@pytest.mark.slow
def test_a_killed_pretraining_continues_on_another_number_of_ranks(tmp_path):
    texts = [f"{n}: " + "a few words " * (n % 17 + 1) for n in range(200)]
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    quire.pack_corpus([corpus], tmp_path / "packed", "byte", max_length=256)

    def train(folder: str, *start: str, options: tuple[str, ...] = ()) -> str:
        script = [str(EXAMPLES / "pretrain.py"), str(tmp_path / "packed")]
        given = ["--folder", str(tmp_path / folder), "--steps", "9", "--save-every", "3", *options]
        environment = {"PATH": "", "OMP_NUM_THREADS": "1", "HOME": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, *start, *script, *given],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
        assert (done.returncode != 0) == bool(options), done.stderr
        return done.stdout

    two_ranks = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    killed = train("killed", *two_ranks, options=("--kill-after", "4"))
    assert "step 3: loss" in killed and "step 6: loss" not in killed
    continued, whole = train("killed"), train("whole")
    assert "continues after step 3 on 1 rank" in continued
    assert "documents in a row of a batch: isolated" in whole
    # The sums of two ranks are rounded in another order than those of one.
    both = [losses(run) for run in (killed + continued, whole)]
    assert both[0] == pytest.approx(both[1], abs=2e-3)
    assert len(both[1]) == 3 and both[1][-1] < both[1][0] - 0.1


def test_a_corpus_is_packed_on_a_ray_cluster_and_every_document_is_there():
    done = subprocess.run(  # Ray is not to stay connected behind it
        [sys.executable, str(EXAMPLES / "ray_cluster.py")],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    shards = re.findall(r"shard-\d+-\d+.parquet: (\d+) rows", done.stdout)
    tasks, rows = re.search(r"(\d+) tasks gave (\d+) rows", done.stdout).groups()
    assert len(shards) == int(tasks) > 3
    assert sum(map(int, shards)) == int(rows)
    assert re.search(r"\d\d+ documents read again: all there", done.stdout)


def test_an_example_runs_as_a_script():
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "pytorch_loop.py")],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "", "OMP_NUM_THREADS": "1"},
    )
    assert "isolated" in done.stdout
