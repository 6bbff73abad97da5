"""The other two styles of configuration, chomp's and the VL wrapper's, by the same typed loader."""

from __future__ import annotations

import pytest

from quire.config import load_options
from quire.errors import InvalidOption
from quire.stream import StreamConfig, open_stream
from quire.vision import VisionConfig

CHOMP = """\
data:
  backend: local_text
  local_text: "a document that is streamed again and again"
  shuffle: false
  packing_mode: bin
  packing_buffer_docs: 4
  packing_max_docs_per_bin: 3
  mask_boundary_loss: true
  train_on_eos: false
  grain_prefetch: 0
  tokenizer: {kind: byte, add_bos: true, add_eos: true}
train: {seq_len: 16, batch_size: 2, grad_accum: 2}
model: {vocab_size: 259, segment_masking: true}
"""


def test_a_config_with_chomp_s_names_opens_a_stream(write):
    config = load_options(StreamConfig, write(CHOMP, "chomp.yaml"), ["train.grad_accum=1"])
    assert config.data.packing_max_docs_per_bin == 3
    with open_stream(config) as stream:
        batch = next(stream)
    assert batch.input_ids.shape == (1, 2, 16)


def test_a_misspelled_name_of_chomp_is_refused(write):
    file = write(CHOMP.replace("packing_mode", "packing_mod"), "chomp.yaml")
    with pytest.raises(InvalidOption, match=r"did you mean data\.packing_mode\?"):
        load_options(StreamConfig, file)


VISION = """\
training:
  packing: true
  packing_buffer: 128
  packing_min_fill_ratio: 0.7
  packing_drop_last: false
  packing_allow_single_long: false
  eval_packing: false
  global_max_length: 4096
"""


def test_a_config_with_the_names_of_the_vision_wrapper_loads_under_training(write):
    training = load_options(VisionConfig, write(VISION, "vision.yaml")).training
    assert training.pack_length() == 4096
    assert (training.packing_buffer, training.packing_min_fill_ratio) == (128, 0.7)
    assert load_options(VisionConfig, {}).training.packing_min_fill_ratio >= 0.6


def test_an_invalid_value_for_the_vision_wrapper_is_refused(write):
    file = write(VISION.replace("0.7", "1.5"), "vision.yaml")
    with pytest.raises(InvalidOption, match=r"training\.packing_min_fill_ratio is 1\.5"):
        load_options(VisionConfig, file)


def test_padding_of_a_bin_has_segment_0_and_the_pad_token(write):
    """A document of 45 tokens leaves a piece of 11, alone in its bin of 17."""
    changes = ["data.packing_max_docs_per_bin=1", "model.pad_token_id=0", "train.batch_size=12"]
    with open_stream(load_options(StreamConfig, write(CHOMP, "chomp.yaml"), changes)) as stream:
        batch = next(stream)
    padding = ~batch.attention_mask
    assert padding.any()
    assert (batch.segment_ids == 0).tolist() == padding.tolist()
    assert set(batch.input_ids[padding].tolist()) == {0}
    assert set(batch.labels[padding].tolist()) == {-100}
