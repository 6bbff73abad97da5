"""Corpora of other systems in S3: opened, planned, read and verified by range reads."""

from __future__ import annotations

import pytest

from quire.corpus import pack_corpus, replan
from quire.errors import SourceChanged
from quire.formats import open_corpus
from quire.packed import PackedDataset
from quire.verify.output import verify_output
from tests.formats.foreign_documents import FOLDER
from tests.storage.kinds import put_all
from tests.verify.test_corpora import CASES

pytestmark = pytest.mark.slow


@pytest.fixture(params=CASES)
def named(request, bucket, client):
    """The local path, the URI and the format of a corpus."""
    path, form = CASES[request.param]
    put_all(client, bucket, FOLDER / path.split("/")[0], path.split("/")[0])
    return FOLDER / path, f"s3://{bucket}/{path}", form


def rows_of(dataset):
    return [row["input_ids"].tolist() for row in dataset[:]]


def test_everything_that_reads_works_on_a_corpus_in_s3(named, bucket, tmp_path):
    path, uri, form = named
    here, there = open_corpus(path, form), open_corpus(uri, form)
    assert [t.tolist() for _, t in there.iterate()] == [t.tolist() for _, t in here.iterate()]
    assert there.fingerprint() == here.fingerprint()
    options = {"max_length": 20, "index_only": True, "format": form}
    local = pack_corpus([path], tmp_path / "here", **options)
    for out in (str(tmp_path / "there"), f"s3://{bucket}/out"):
        packed = pack_corpus([uri], out, **options)
        assert packed.ledger == local.ledger
        assert rows_of(PackedDataset(out)) == rows_of(PackedDataset(local.path))
        again = replan(out, max_length=8)
        assert max(map(len, rows_of(PackedDataset(out, plan=again.plan)))) <= 8
        report = verify_output(out)
        assert (report.problems, report.notes, report.plans) == ([], [], 2)


def test_only_the_rows_that_are_used_are_requested(bucket, client, store, tmp_path):
    uri = put_all(client, bucket, FOLDER / "megatron", "megatron")
    pack_corpus([f"{uri}/uint16.idx"], tmp_path / "out", max_length=20, index_only=True,
                format="megatron:unit=sequences")  # fmt: skip
    dataset = PackedDataset(tmp_path / "out")
    store.requests.clear()
    row = dataset[0]
    assert store.bytes_read(".bin") == 2 * len(row["input_ids"])
    assert store.bytes_read(".idx") == 0


def test_a_file_in_s3_that_changed_under_the_plan_is_refused(bucket, client, tmp_path):
    uri = put_all(client, bucket, FOLDER / "megatron", "megatron")
    pack_corpus([f"{uri}/uint16.idx"], tmp_path / "out", max_length=20, index_only=True,
                format="megatron:unit=sequences")  # fmt: skip
    data = bytearray((FOLDER / "megatron" / "uint16.bin").read_bytes())
    data[7] ^= 1
    client.put_object(Bucket=bucket, Key="megatron/uint16.bin", Body=bytes(data))
    with pytest.raises(SourceChanged, match="changed after the plans"):
        PackedDataset(tmp_path / "out")
    assert not verify_output(tmp_path / "out").ok
