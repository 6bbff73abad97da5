"""Options that were added after an output was begun: a missing one means its default."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

import quire.corpus.pack
from quire.corpus.options import CorpusOptions
from quire.errors import OutputError
from quire.verify.output import verify_output
from tests.corpus.corpora import forge, hashes, jsonl, pack, texts


@dataclass(frozen=True, kw_only=True)
class LaterOptions(CorpusOptions):
    polish: str = "none"


@pytest.fixture(params=[False, True], ids=["rows", "index_only"])
def options(request):
    return {"partition_size": 300, "index_only": request.param}


@pytest.fixture
def corpus(tmp_path):
    return jsonl(tmp_path / "a.jsonl", texts(60))


def interrupt(corpus, out, options) -> None:
    """Pack until the first shard is committed."""

    def stop(progress):
        if progress.commit is not None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack(corpus, out, on_progress=stop, **options)


def test_an_output_begun_before_an_option_existed_is_resumed(
    tmp_path, corpus, options, monkeypatch
):
    out = tmp_path / "out"
    pack(corpus, tmp_path / "whole", **options)
    interrupt(corpus, out, options)
    committed = {path.name: path.stat().st_mtime_ns for path in (out / "data").iterdir()}
    monkeypatch.setattr(quire.corpus.pack, "CorpusOptions", LaterOptions)
    pack(corpus, out, resume=True, **options)
    assert hashes(out) == hashes(tmp_path / "whole")
    assert verify_output(out).problems == []
    kept = {name: (out / "data" / name).stat().st_mtime_ns for name in committed}
    assert kept == committed  # its commits are still valid


def test_a_value_other_than_the_default_of_a_later_option_is_refused(
    tmp_path, corpus, options, monkeypatch
):
    out = tmp_path / "out"
    interrupt(corpus, out, options)
    monkeypatch.setattr(quire.corpus.pack, "CorpusOptions", LaterOptions)
    with pytest.raises(OutputError, match=r"options\.polish is 'none' there and 'high' here; res"):
        pack(corpus, out, resume=True, polish="high", **options)


def test_an_output_completed_before_an_option_existed_is_complete(
    tmp_path, corpus, options, monkeypatch
):
    out = tmp_path / "out"
    pack(corpus, out, **options)
    monkeypatch.setattr(quire.corpus.pack, "CorpusOptions", LaterOptions)
    assert pack(corpus, out, resume=True, **options).was_complete
    with pytest.raises(OutputError, match=r"options\.polish is 'none' there and 'high' here; res"):
        pack(corpus, out, resume=True, polish="high", **options)


def test_an_option_that_no_longer_exists_is_refused(tmp_path, corpus, options, monkeypatch):
    out = tmp_path / "out"
    monkeypatch.setattr(quire.corpus.pack, "CorpusOptions", LaterOptions)
    interrupt(corpus, out, options | {"polish": "high"})
    monkeypatch.undo()
    with pytest.raises(OutputError, match=r"options\.polish is 'high' there and None here"):
        pack(corpus, out, resume=True, **options)


def test_the_default_of_an_option_that_no_longer_exists_is_not_recorded(
    tmp_path, corpus, options, monkeypatch
):
    out = tmp_path / "out"
    pack(corpus, tmp_path / "whole", **options)
    monkeypatch.setattr(quire.corpus.pack, "CorpusOptions", LaterOptions)
    interrupt(corpus, out, options)
    monkeypatch.undo()
    pack(corpus, out, resume=True, **options)
    assert hashes(out) == hashes(tmp_path / "whole")


def test_verify_reads_a_missing_option_as_its_default(tmp_path, corpus, options):
    for name, stride, is_explained in (("default", 0, True), ("other", 2, False)):
        out = tmp_path / name
        pack(corpus, out, stride=stride, **options)
        assert verify_output(out).problems == []

        def forget_stride(manifest):
            for entry in (manifest, *manifest.get("plans", [])):
                del entry["options"]["stride"]

        forge(out, forget_stride)
        assert (verify_output(out).problems == []) == is_explained


def test_an_output_begun_with_best_fit_is_resumed_with_it_unless_another_strategy_is_named(
    tmp_path, corpus, options
):
    out, begun = tmp_path / "out", options | {"strategy": "best_fit"}
    pack(corpus, tmp_path / "whole", **begun)
    interrupt(corpus, out, begun)
    with pytest.raises(OutputError, match="strategy"):
        pack(corpus, out, resume=True, **options, strategy="exact_fit")
    pack(corpus, out, resume=True, **options)
    assert hashes(out) == hashes(tmp_path / "whole")
    pack(corpus, out, resume=True, **options)  # a finished one is left as it is
    assert hashes(out) == hashes(tmp_path / "whole")
