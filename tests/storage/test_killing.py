"""SIGKILL of the installed command while it packs from a store into a store."""

from __future__ import annotations

import pytest

from tests.storage.killing import FORMS, KillLoop


@pytest.mark.parametrize("form", FORMS)
def test_fault_37_a_killed_run_is_resumed_to_the_same_objects(store, tmp_path, form):
    loop = KillLoop(store, tmp_path, seed=list(FORMS).index(form))
    list(loop.run(2, (form,)))
    assert loop.kills.total() >= 2 and loop.chains[form]
