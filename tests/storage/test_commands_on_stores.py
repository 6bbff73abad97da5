"""The commands with URIs: what they print, and how they end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from tests.corpus.corpora import jsonl, texts
from tests.storage.killing import QUIRE


def quire(*arguments, **environment):
    done = subprocess.run(
        [QUIRE, *map(str, arguments)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, done.stdout, done.stderr


PACK = ("--tokenizer", "byte", "--max-length", "16", "--partition-size", "2000")


@pytest.fixture
def corpus(tmp_path):
    return jsonl(tmp_path / "corpus.jsonl", texts(100))


def test_pack_inspect_and_report_work_on_stores(tmp_path, bucket, store, corpus):
    uri = f"s3://KEYOFMINE:secret-of-mine@{bucket}/out"
    said = []
    code, out, error = quire("pack", corpus, "--out", uri, "--json", *PACK)
    assert code == 0, error
    assert json.loads(out)["path"] == f"s3://{bucket}/out"
    said += [out, error]
    code, out, error = quire("verify", uri)
    assert (code, error) == (0, "") and out.startswith("whole: ")
    code, out, error = quire("inspect", uri, "-n", "2")
    assert code == 0, error
    assert "2 of" in out and "rows of this packed dataset" in out
    code, out, error = quire("report", uri, "-o", tmp_path / "page.html", "--samples", "1")
    assert code == 0, error
    page = (tmp_path / "page.html").read_text()
    assert '"name": "out"' in page or '"name":"out"' in page
    for text in (*said, out, error, page):
        assert "secret-of-mine" not in text and "KEYOFMINE" not in text


@pytest.mark.parametrize(
    ("uri", "first", "second"),
    [
        ("s3://no-such-bucket-x/out", "there is no bucket 'no-such-bucket-x'", "create it"),
        ("s4://me:word@there/out", "s4:// is not a scheme", "write s3://"),
        ("abfs://there/out", "needs a package that is not installed", "adlfs"),
        ("sftp://me:word@there/out", "needs a package that is not installed", "paramiko"),
        ("s3://bucket/out?regoin=eu-west-1", "unknown option", ""),
    ],
)
def test_errors_are_two_lines_and_say_what_to_do(store, corpus, uri, first, second):
    commands = [("pack", corpus, "--out", uri, *PACK), ("verify", uri), ("inspect", uri)]
    for command in commands if uri.startswith("s4") else commands[:1]:
        code, out, error = quire(*command)
        assert (code, out) == (2, ""), command
        lines = error.strip().split("\n")
        assert len(lines) == (2 if second else 1) and first in lines[0]
        assert not second or second in lines[1]
        assert "word" not in error


def test_missing_credentials_end_with_an_error_within_seconds(bucket, store, corpus, tmp_path):
    store.failing = lambda request: 403
    names = [name for name in os.environ if name.startswith("AWS_ACCESS") or "AWS_SECRET" in name]
    hidden = dict.fromkeys(names, "") | {"HOME": str(tmp_path), "AWS_PROFILE": ""}
    code, _, error = quire("pack", corpus, "--out", f"s3://{bucket}/out", *PACK, **hidden)
    assert code == 2
    assert "denies access" in error and "AWS_ACCESS_KEY_ID" in error


def test_fault_41_an_interrupted_run_names_its_output_without_secrets(bucket, store, tmp_path):
    corpus = jsonl(tmp_path / "corpus.jsonl", texts(2000))
    uri = f"s3://KEYOFMINE:secret-of-mine@{bucket}/out"
    process = None

    def interrupt(request):
        if request.method == "PUT" and "shard-00003" in request.path:
            process.send_signal(signal.SIGTERM)

    store.after = interrupt
    arguments = [QUIRE, "pack", str(corpus), "--out", uri, *PACK]
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)
    error = process.communicate(timeout=120)[1]
    store.after = lambda request: None
    assert process.returncode == 143
    assert f"stays in 's3://{bucket}/out': run the same command with --resume" in error
    assert not re.search("KEYOFMINE|secret-of-mine", error)
    assert quire("pack", corpus, "--out", uri, "--resume", *PACK)[0] == 0
    assert quire("verify", uri)[0] == 0


def test_importing_storage_imports_no_file_system():
    code = "import quire.storage, sys; print({'pyarrow', 'fsspec'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
