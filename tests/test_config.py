"""Config: plain YAML to frozen options, and errors that say where and how."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
import pytest

from quire.config import load_options
from quire.errors import InvalidOption
from quire.options import Options
from quire.options.nested import build_options, flat_options


@dataclass(frozen=True, kw_only=True)
class Source(Options):
    weight: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Data(Options):
    mode: Literal["sequential", "bin"] = "sequential"
    seed: int = 0
    shuffle: bool = True
    name: str | None = None
    files: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.seed < 0:
            raise InvalidOption(f"seed is {self.seed} but must be an integer >= 0")


@dataclass(frozen=True, kw_only=True)
class Train(Options):
    seq_len: int


@dataclass(frozen=True, kw_only=True)
class Config:
    train: Train
    data: Data = field(default_factory=Data)


GOOD = {"train": {"seq_len": 8}}


def refusal(plain, *overrides) -> str:
    with pytest.raises(InvalidOption) as caught:
        load_options(Config, plain, overrides)
    return str(caught.value)


def test_a_dict_becomes_nested_frozen_options():
    plain = {**GOOD, "data": {"seed": 3, "files": ["a"], "sources": [{"weight": 2}, {}]}}
    config = load_options(Config, plain)
    assert config.data.sources == (Source(weight=2.0), Source())
    assert config.data.files == ("a",)
    assert type(config.data.sources[0].weight) is float


def test_a_yaml_file_gives_the_same_options_as_a_dict(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("train: {seq_len: 8}\ndata:\n  seed: 3\n  name: null\n")
    assert load_options(Config, file) == load_options(Config, {**GOOD, "data": {"seed": 3}})


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ({**GOOD, "data": {"sed": 1}}, "unknown option data.sed; did you mean data.seed?"),
        ({**GOOD, "dta": {}}, "unknown option dta; did you mean data?"),
        ({**GOOD, "seq_len": 8}, "unknown option seq_len; did you mean train.seq_len?"),
        ({**GOOD, "data": {1: 2}}, "unknown option data.1;"),
        ({**GOOD, "data": {"sources": [{"wight": 1}]}}, "unknown option data.sources[0].wight"),
        ({"train": {}}, "train.seq_len is missing"),
        ({}, "train.seq_len is missing"),
        ({"train": {"seq_len": "8"}}, "train.seq_len is '8' but must be an integer"),
        ({"train": {"seq_len": True}}, "train.seq_len is True but must be an integer"),
        ({"train": {"seq_len": 8.0}}, "train.seq_len is 8.0 but must be an integer"),
        ({"train": {"seq_len": None}}, "train.seq_len is None but must be an integer"),
        ({**GOOD, "data": {"shuffle": 1}}, "data.shuffle is 1 but must be True or False"),
        ({**GOOD, "data": {"name": 7}}, "data.name is 7 but must be a string"),
        ({**GOOD, "data": {"mode": "bins"}}, "data.mode is 'bins' but must be one of sequential, "),
        ({**GOOD, "data": {"mode": "bins"}}, "did you mean bin?"),
        ({**GOOD, "data": {"files": "a"}}, "data.files is 'a' but must be a list"),
        (
            {**GOOD, "data": {"sources": [{"weight": "a"}]}},
            "sources[0].weight is 'a' but must be",
        ),
        ({**GOOD, "data": {"seed": -1}}, "data.seed is -1 but must be an integer >= 0"),
        ({**GOOD, "data": 3}, "data is 3 but must map names to values"),
    ],
)
def test_an_error_gives_the_dotted_name_the_value_and_the_rule(plain, message):
    assert message in refusal(plain)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train: {seq_len: 8}\ntrain: {seq_len: 9}", "the key 'train' appears twice"),
        ("train: {seq_len: 8, seq_len: 9}", "the key 'seq_len' appears twice"),
        ("train: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
        ("train: !custom 3", "could not determine a constructor"),
        ("train: {seq_len: 8", "is not plain YAML"),
        ("? [1, 2]\n: 3", "a key is a name, not a collection"),
        ("- 1", "holds list but must map names to values"),
        ("train: \x00", "is not plain YAML"),
    ],
)
def test_yaml_that_is_not_plain_is_refused(tmp_path, text, message):
    file = tmp_path / "config.yaml"
    file.write_text(text)
    assert message in refusal(file)


@pytest.mark.parametrize(
    "value",
    [
        "2024-13-45",
        "!!int abc",
        '!!int ""',
        "!!bool maybe",
        "!!timestamp soon",
        "!!float wide",
        "9" * 5000,
        "{? !!set {a} : 1}",
        "[" * 5000,
    ],
    ids=lambda value: value[:20],
)
def test_a_value_that_yaml_itself_cannot_read_is_refused(tmp_path, value):
    """Fault 51: in a file and in an override."""
    file = tmp_path / "config.yaml"
    file.write_text(f"train: {{seq_len: {value}}}\n")
    with pytest.raises(InvalidOption, match="is not plain YAML"):
        load_options(Config, file)
    with pytest.raises(InvalidOption, match="is not plain YAML"):
        load_options(Config, GOOD, [f"train.seq_len={value}"])


@pytest.mark.parametrize("name", ["mode", "seed", "name", "files"])
def test_nested_anchors_do_not_give_an_endless_message(tmp_path, name):
    """Fault 51: ten lines of YAML that expand to 9**9 strings."""
    levels = "".join(f", &l{n + 1} [{', '.join([f'*l{n}'] * 9)}]" for n in range(9))
    file = tmp_path / "config.yaml"
    file.write_text(f"train: {{seq_len: 8}}\ndata: {{{name}: [[&l0 [x]{levels}]]}}\n")
    with pytest.raises(InvalidOption, match=rf"data\.{name}") as caught:
        load_options(Config, file)
    assert len(str(caught.value)) < 20_000


def test_an_integer_too_large_for_a_float_is_refused():
    with pytest.raises(
        InvalidOption, match=r"data\.sources\[0\]\.weight is 1.* but must be a finite number"
    ):
        build_options(Config, {**GOOD, "data": {"sources": [{"weight": 10**400}]}})


@pytest.mark.parametrize(
    "number", [10**5000, -(10**5000), 1 << 20_000], ids=["decimal", "negative", "binary"]
)
@pytest.mark.parametrize(("section", "name"), [("train", "seq_len"), ("data", "seed")])
def test_an_integer_of_thousands_of_digits_is_refused_like_any_other_value(section, name, number):
    plain = {**GOOD, "data": {}}
    plain[section] = {name: number}
    message = refusal(plain)
    assert re.match(
        rf"{section}\.{name} is an integer of about [56],0\d\d digits but must", message
    )


def test_an_integer_of_thousands_of_digits_in_yaml_is_refused(tmp_path):
    file = tmp_path / "config.yaml"
    for text in ("9" * 5000, "0x" + "f" * 5000):
        file.write_text(f"train: {{seq_len: {text}}}")
        assert refusal(file)
        assert refusal(GOOD, f"data.seed={text}")
    file.write_text(f"train: {{seq_len: 8, ? 0x{'f' * 5000} : 1}}")
    assert "unknown option train.an integer of about" in refusal(file)


# Sections of which other programs read a part


@dataclass(frozen=True, kw_only=True)
class SharedTrain(Options):
    ignores_unknown: ClassVar[bool] = True
    seq_len: int
    batch_size: int = 1


@dataclass(frozen=True, kw_only=True)
class SharedConfig:
    ignores_unknown: ClassVar[bool] = True
    train: SharedTrain
    data: Data = field(default_factory=Data)


def test_keys_of_other_programs_are_ignored_in_one_line():
    whole = {
        "train": {"seq_len": 8, "steps": 100, "log_every": 10, "seed": 1},
        "data": {"seed": 3},
        "optim": {"lr": 3e-4},
        "logging": None,
    }
    with pytest.warns(UserWarning) as warned:
        options = load_options(SharedConfig, whole, ["train.jit=true"])
    assert options == SharedConfig(train=SharedTrain(seq_len=8), data=Data(seed=3))
    (message,) = [str(warning.message) for warning in warned]
    assert message == (
        "the config has keys that are ignored: train.steps, train.log_every, train.seed, train.jit"
        ", optim, logging"
    )


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ({"train": {"seq_len": 8, "batch": 2}}, "train.batch; did you mean train.batch_size?"),
        ({"train": {"seqlen": 8}}, "unknown option train.seqlen; did you mean train.seq_len?"),
        ({**GOOD, "dta": {}}, "unknown option dta; did you mean data?"),
        ({**GOOD, "seq_len": 8}, "unknown option seq_len; did you mean train.seq_len?"),
        ({**GOOD, "data": {"steps": 1}}, "unknown option data.steps; known: data.mode"),
    ],
)
def test_a_key_that_is_nearly_an_option_or_in_a_section_of_ours_is_an_error(plain, message):
    with pytest.raises(InvalidOption) as caught:
        load_options(SharedConfig, plain)
    assert message in str(caught.value)


def test_a_missing_config_file_is_named(tmp_path):
    assert "there is no config file" in refusal(tmp_path / "none.yaml")


def test_an_empty_config_file_has_only_defaults(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("")
    assert "train.seq_len is missing" in refusal(file)


def test_overrides_replace_values_without_changing_the_given_config():
    plain = {"train": {"seq_len": 8}, "data": {"seed": 1}}
    config = load_options(Config, plain, ["data.seed=5", "data.name=x", "train.seq_len=16"])
    assert (config.data.seed, config.data.name, config.train.seq_len) == (5, "x", 16)
    assert plain == {"train": {"seq_len": 8}, "data": {"seed": 1}}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("data.seed", "must be name=value"),
        ("=1", "must be name=value"),
        ("data.sed=1", "unknown option data.sed; did you mean data.seed?"),
        ("train.seq_len.x=1", "seq_len is 8, not a section"),
        ("data.seed=!x 1", "is not plain YAML"),
        ("data.seed=a", "data.seed is 'a' but must be an integer"),
    ],
)
def test_a_bad_override_is_refused(override, message):
    assert message in refusal(GOOD, override)


def test_flat_options_name_every_value():
    config = build_options(Config, {**GOOD, "data": {"files": ["a"], "sources": [{}]}})
    flat = flat_options(config)
    assert flat["train.seq_len"] == 8
    assert flat["data.files"] == ["a"]
    assert flat["data.sources[0].weight"] == 1.0


def test_numpy_integers_are_accepted():
    data = build_options(Data, {"seed": np.int64(3), "sources": [{"weight": np.int32(2)}]}, "data")
    assert (data.seed, type(data.seed)) == (3, int)
    assert (data.sources[0].weight, type(data.sources[0].weight)) == (2.0, float)
