"""Large vocabularies: a sample of the columns, no loss, and the model as it was."""

from __future__ import annotations

import pytest
import torch
import transformers
from tests.verify.isolation.callables import Averager
from tests.verify.isolation.models import GROUPED, collate, rows, segment_batch, without_use_cache

from quire.errors import ModelError
from quire.verify import check_isolation


@pytest.mark.parametrize("vocabulary", [4096, 20_000])
def test_a_sample_of_a_large_vocabulary_is_compared(vocabulary):
    config = transformers.LlamaConfig(**GROUPED | {"vocab_size": vocabulary})
    torch.manual_seed(0)
    large = transformers.LlamaForCausalLM(config).eval()
    widths = []
    large.lm_head.register_forward_hook(lambda *parts: widths.append(parts[-1].shape[-1]))
    report = check_isolation(large, collate(rows()))
    assert (report.verdict, report.num_logits) == ("isolated", 4096)
    assert set(widths) == {4096}
    assert large(**collate(rows())).logits.shape[-1] == vocabulary  # as it was
    leak = check_isolation(large, without_use_cache(collate(rows())))
    assert (leak.verdict, leak.diagnosis.confirmed) == ("leak", True)


def test_logits_that_are_not_the_last_layers_output_are_compared_in_full():
    class Padded(transformers.LlamaForCausalLM):
        def forward(self, **batch):
            output = super().forward(**batch)
            output.logits = torch.nn.functional.pad(output.logits, (0, 1))
            return output

    config = transformers.LlamaConfig(**GROUPED | {"vocab_size": 5000})
    report = check_isolation(Padded(config).eval(), collate(rows()))
    assert (report.verdict, report.num_logits) == ("isolated", 5001)


def test_labels_are_left_out_if_the_model_does_not_need_them():
    seen = []

    def watch(input_ids, segment_ids, labels=None):
        seen.append(labels)
        return Averager()(input_ids, segment_ids)

    def needs(input_ids, segment_ids, labels):
        return watch(input_ids, segment_ids, labels)

    batch = segment_batch(labels=torch.zeros(2, 19))
    assert check_isolation(watch, batch).verdict == "isolated"
    assert set(map(type, seen)) == {type(None)}
    with pytest.raises(ModelError, match="missing 1 required positional argument: 'labels'"):
        check_isolation(needs, segment_batch())
