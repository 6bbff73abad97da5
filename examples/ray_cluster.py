"""Pack a corpus as tasks of a Ray cluster, and prove that every token is there once.

Without an argument, a small cluster is started on this machine and ends with the run. With the
address of a cluster (HOST:6379), the same job runs there; its nodes must see the folder.

    python examples/ray_cluster.py
    python examples/ray_cluster.py 10.0.0.1:6379 /shared/folder
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from source_texts import write_corpus

import quire
from quire.corpus import RayEngine
from quire.verify.inputs import verify_inputs
from quire.verify.output import verify_output


def engine(address: str | None) -> RayEngine:
    if address is not None:
        return RayEngine(address=address)
    small = {"num_cpus": 2, "object_store_memory": 100_000_000}
    return RayEngine(address="local", init_options=small)


def main(address: str | None, folder: Path) -> None:
    corpus = write_corpus(folder / "corpus" / "library.jsonl", num_files=150)
    commits = []

    def hear(progress) -> None:
        if progress.commit is not None:
            commits.append(progress.commit)
            print(f"  {progress.commit.name}: {progress.commit.rows} rows")

    result = quire.pack_corpus(
        [corpus],
        folder / "packed",
        "byte",
        max_length=512,
        partition_size="16K",
        engine=engine(address),
        on_progress=hear,
        resume=True,  # run again after whatever happened: what is committed stays
    )
    print(f"{len(commits)} tasks gave {result.num_rows} rows, {result.utilization:.1%} full")
    report = verify_inputs(verify_output(result.path), [corpus], "byte")
    print(f"{report.compared} documents read again: {'all there' if report.ok else 'NOT WHOLE'}")
    rows = quire.PackedDataset(result.path)
    print(f"the first of {len(rows)} rows holds {len(rows[0]['document_starts'])} documents")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address", nargs="?", help="HOST:PORT of a cluster")
    parser.add_argument("folder", nargs="?", type=Path, help="a folder that its nodes see")
    given = parser.parse_args()
    if given.address:
        main(given.address, given.folder)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(None, Path(temporary))
