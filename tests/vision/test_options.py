"""Options of vision-language packing: the names of seed 004, safe defaults, no typos."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from quire.config import load_options
from quire.errors import InvalidOption
from quire.options.nested import build_options
from quire.vision import PackedVLDataset, VisionConfig, VisionPackingOptions


class Template:
    max_length = 2048


def loaded(**training):
    return load_options(VisionConfig, {"training": training}).training


def test_the_defaults_are_those_of_the_seed():
    plain = dataclasses.asdict(VisionPackingOptions())
    assert {name: plain[name] for name in list(plain)[:6]} == {
        "packing": False,
        "packing_length": None,
        "packing_buffer": 512,
        "packing_min_fill_ratio": 0.65,
        "packing_drop_last": True,
        "packing_allow_single_long": True,
    }
    assert plain["eval_packing"] is False
    assert plain["max_bad_records"] == 0


def test_options_load_from_yaml_under_training(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text("training:\n  packing: true\n  packing_length: 4096\n  packing_buffer: 128\n")
    options = load_options(VisionConfig, file, ["training.packing_min_fill_ratio=1"]).training
    assert (options.packing, options.packing_length, options.packing_buffer) == (True, 4096, 128)
    assert options.packing_min_fill_ratio == 1.0


def test_the_seeds_batch_options_load_together_with_packing():
    options = loaded(packing=True, per_device_train_batch_size=4, gradient_accumulation_steps=2)
    assert (options.per_device_train_batch_size, options.gradient_accumulation_steps) == (4, 2)
    assert loaded(packing=True).per_device_train_batch_size is None
    packs = PackedVLDataset.from_options(
        [{"length": 3}] * 2, dataclasses.replace(options, packing_length=6)
    )
    assert [len(pack) for pack in packs] == [2]


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"per_device_train_batch_size": 0}, "training.per_device_train_batch_size is 0"),
        ({"gradient_accumulation_steps": 1.5}, "training.gradient_accumulation_steps is 1.5"),
        ({"packing_length": 0}, "training.packing_length is 0 but must be an integer >= 1"),
        ({"packing_length": -5}, "training.packing_length is -5 but must be an integer >= 1"),
        ({"packing_buffer": 0}, "training.packing_buffer is 0"),
        ({"packing_min_fill_ratio": 0.0}, "training.packing_min_fill_ratio is 0.0"),
        ({"packing_min_fill_ratio": 1.5}, "training.packing_min_fill_ratio is 1.5"),
        ({"packing_min_fill_ratio": float("nan")}, "training.packing_min_fill_ratio is nan"),
        ({"packing_max_images": 0}, "training.packing_max_images is 0"),
        ({"packing_drop_last": "no"}, "training.packing_drop_last is 'no'"),
        ({"max_bad_records": -1}, "training.max_bad_records is -1"),
        ({"global_max_length": 0}, "training.global_max_length is 0"),
    ],
)
def test_a_value_out_of_range_is_named_with_its_dotted_key(training, message):
    with pytest.raises(InvalidOption) as raised:
        loaded(**training)
    assert message in str(raised.value)


def test_an_unknown_option_names_the_one_that_was_meant():
    with pytest.raises(
        InvalidOption, match=r"training\.packing_lenght; did you mean training\.pac"
    ):
        loaded(packing_lenght=3)


@pytest.mark.parametrize("wrong", [{"packing": 1}, {"packing_length": 2.5}, {"seed": True}])
def test_values_of_another_type_are_rejected_in_code_too(wrong):
    with pytest.raises(InvalidOption, match=next(iter(wrong))):
        VisionPackingOptions(**wrong)


def test_the_pack_length_is_the_option_then_the_global_one_then_the_templates():
    assert VisionPackingOptions(packing_length=7, global_max_length=9).pack_length(Template()) == 7
    assert VisionPackingOptions(global_max_length=9).pack_length(Template()) == 9
    assert VisionPackingOptions().pack_length(Template()) == 2048


def test_a_missing_pack_length_is_an_error_with_its_remedy():
    with pytest.raises(InvalidOption, match="set packing_length or global_max_length"):
        VisionPackingOptions().pack_length(object())


def test_numpy_integers_become_plain_ones():
    numpy = pytest.importorskip("numpy")
    options = VisionPackingOptions(packing_length=numpy.int64(8), seed=numpy.uint8(3))
    assert type(options.packing_length) is type(options.seed) is int
    assert build_options(VisionPackingOptions, options) is options


@pytest.mark.parametrize("package", ["torch", "transformers"])
@pytest.mark.parametrize("name", ["configure_training", "PackingCallback", "VisionTraining"])
def test_a_missing_package_is_reported_with_its_install_command(package, name):
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "import quire.vision\n"
        "from quire.errors import MissingDependency\n"
        f"try: quire.vision.{name}\n"
        "except MissingDependency as missing: print(missing)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == (
        f"quire.vision.{name} needs {package}, which is not installed; run: pip install "
        "'quire-pack[hf,torch]'"
    )
