"""Targets: what each tag builds, when, how often; and the names that it may contain."""

from __future__ import annotations

import functools
import subprocess
import sys

import pytest

import quire
from quire.collate import DataCollatorForCausalLM, PaddingFreeCollator
from quire.compat.recipes import known_names, load_recipe, register_name
from quire.compat.recipes.names import resolve
from quire.compat.recipes.rendering import SHIPPED, shipped_names
from quire.errors import InvalidOption, InvalidRecipe, QuireError


class Counter:
    """Counts how often it is built."""

    built = 0

    def __init__(self, *args, **kwargs):
        type(self).built += 1
        self.args, self.kwargs = args, kwargs


@pytest.fixture(autouse=True)
def counter():
    register_name("tests:Counter", Counter)
    Counter.built = 0
    return Counter


# Tags


def test_plain_yaml_comes_back_as_it_is(load):
    recipe = load("a: [1, 2.5, x, null, True]\nb: {c: '1', d: 2024-01-01}\n")
    assert dict(recipe) == {"a": [1, 2.5, "x", None, True], "b": {"c": "1", "d": "2024-01-01"}}


def test_dict_list_and_tuple_may_be_empty(load):
    recipe = load(
        "a: !dict\nb: !list\nc: !tuple\nd: !dict {x: 1}\ne: !list [1]\nf: !tuple [1, 2]\n"
    )
    assert dict(recipe) == {"a": {}, "b": [], "c": (), "d": {"x": 1}, "e": [1], "f": (1, 2)}


def test_hidden_keys_are_not_targets_but_their_anchors_are_known(load):
    recipe = load(".define: &one {x: 1}\n.define: &two {y: 2}\nboth: [*one, *two, *one]\n")
    assert list(recipe) == ["both"]
    assert recipe["both"] == [{"x": 1}, {"y": 2}, {"x": 1}]
    assert recipe["both"][0] is recipe["both"][2]


def test_a_singleton_is_built_once_and_shared(load):
    recipe = load("a: &a !singleton:tests:Counter\nb: [*a, *a]\nc: !call:tests:Counter {x: 1}\n")
    assert recipe["a"] is recipe["b"][0] is recipe["b"][1] is recipe["a"]
    assert Counter.built == 1
    assert recipe["c"].kwargs == {"x": 1}


def test_a_factory_builds_a_new_object_at_every_use(load):
    recipe = load("a: &a !factory:tests:Counter\nb: [*a, *a]\n")
    assert len({id(one) for one in (recipe["a"], recipe["a"], *recipe["b"])}) == 4


def test_a_partial_binds_arguments_and_calls_nothing(load):
    recipe = load("a: !partial:tests:Counter@label {args: [1, 2], kwargs: {x: 3}}\n")
    assert isinstance(recipe["a"], functools.partial)
    assert Counter.built == 0
    made = recipe["a"](4, y=5)
    assert (made.args, made.kwargs) == ((1, 2, 4), {"x": 3, "y": 5})


def test_targets_are_built_on_first_use(load):
    recipe = load("a: !singleton:tests:Counter\nb: !var missing\nc: 1\n")
    assert "a" in recipe
    assert len(recipe) == 3
    assert "Counter" not in repr(recipe)
    assert recipe["c"] == 1
    assert Counter.built == 0


def test_a_variable_has_the_value_of_the_caller_or_its_default(load):
    text = "a: !var x\nb: !var {name: y, default: [1, *z]}\nc: !var [w, 3]\n"
    recipe = load("q: &z 9\n" + text, x=load, w=None)
    assert recipe["a"] is load
    assert recipe["b"] == [1, 9]
    assert recipe["c"] is None


def test_a_target_can_be_used_by_others_by_name(load):
    recipe = load("a: !singleton:tests:Counter [!target b]\nb: !dict {x: 1}\n")
    assert recipe["a"].args[0] is recipe["b"]


def test_a_mapping_s_own_keys_override_merged_ones(load):
    recipe = load(
        ".define: &a {x: 1, y: 1}\n.define: &b !dict {y: 2, z: 2}\n.define: &none\n"
        "c: {<<: [*a, *b], z: 3}\n"
        "d: !singleton:tests:Counter\n    <<: *b\n    <<: *none\n    y: 5\n"
    )
    assert recipe["c"] == {"x": 1, "y": 1, "z": 3}
    assert recipe["d"].kwargs == {"y": 5, "z": 2}


def test_a_repeated_key_overrides_the_first(load):
    assert load("a: {x: 1, y: 2, x: 3}\n")["a"] == {"x": 3, "y": 2}


# Templates


def test_a_child_keeps_what_it_does_not_change(load, write):
    write(
        "-- block one\na: 1\n-- endblock\n-- block two\nb: &b\n    x: 1\n-- endblock\nc: *b\n",
        "p.yaml",
    )
    recipe = load("-- extends 'p.yaml'\n[two]\n    == super()\n    y: {{ n + 1 }} ## more\n", n=4)
    assert dict(recipe) == {"a": 1, "b": {"x": 1, "y": 5}, "c": {"x": 1, "y": 5}}


def test_conditions_loops_macros_and_includes_work(load, write):
    write("-- macro pair(name)\n{{ name }}: !list [{{ name }}, 1]\n-- endmacro\n", "macros.yaml")
    write("included: {{ n | default(7) }}\n", "parts/one.yaml")
    recipe = load(
        "-- from 'macros.yaml' import pair\n"
        "-- for name in ['a', 'b']\n    == pair(name)\n-- endfor\n"
        "-- if flag is defined\nflag: {{ flag | upper }}\n-- else\nflag: no flag\n-- endif\n"
        "-- include 'parts/one.yaml'\n"
        "{# raw Jinja #}{% set x = 3 %}x: {{ x * 2 }}\n",
        flag="up",
    )
    assert dict(recipe) == {"a": ["a", 1], "b": ["b", 1], "flag": "UP", "included": 7, "x": 6}


def test_a_template_next_to_the_recipe_overrides_a_shipped_one(load, write):
    write(
        "-- block map_function\na: 1\n-- endblock\n",
        "types/training_script/causal_lm/causal_lm.yaml",
    )
    assert dict(load("[map_function]\na: 2\n")) == {"a": 2}


def test_a_template_sees_only_plain_variables(load, counter):
    recipe = load("a: {{ x is defined }}\nb: {{ y is defined }}\n", x=1, y=Counter())
    assert dict(recipe) == {"a": True, "b": False}


def test_windows_line_ends_and_a_byte_order_mark_are_accepted(tmp_path):
    file = tmp_path / "r.yaml"
    file.write_bytes(b"\xef\xbb\xbf-- if True\r\na: 1\r\n-- endif\r\n")
    assert dict(load_recipe(file)) == {"a": 1}


def test_an_empty_recipe_has_no_targets(load):
    assert dict(load("## nothing\n")) == {}


# Names


def test_every_name_of_the_table_is_a_callable_of_quire():
    for name in known_names():
        if not name.startswith(("tests:", "examples:")):
            assert resolve(name).__module__.startswith("quire.")


def test_forgather_s_names_are_quire_s_callables():
    assert resolve("forgather.ml.datasets:block_tokenize_fn") is quire.block_tokenize_fn
    collator = resolve("forgather.ml.data_collator:DataCollatorForCausalLM")
    assert collator is DataCollatorForCausalLM


def test_a_collator_of_quire_is_built_by_its_own_name(load):
    recipe = load("a: !singleton:quire.collate:PaddingFreeCollator\n    tokenizer: byte\n")
    assert isinstance(recipe["a"], PaddingFreeCollator)


@pytest.mark.parametrize(
    ("name", "function", "message"),
    [
        ("quire:block_tokenize_fn", print, "is quire's own"),
        ("tests:Counter", print, "registered for another callable"),
        ("a b", print, "cannot be used in a tag"),
        ("a@b", print, "cannot be used in a tag"),
        ("", print, "cannot be used in a tag"),
        ("tests:number", 3, "is not callable"),
    ],
)
def test_a_name_is_registered_once_and_never_over_quire_s_own(name, function, message):
    with pytest.raises(InvalidOption, match=message):
        register_name(name, function)


def test_registering_the_same_callable_again_is_fine():
    register_name("tests:Counter", Counter)


def test_an_unknown_target_is_a_key_error_that_names_the_nearest(load):
    recipe = load("train_dataset: 1\n")
    with pytest.raises(KeyError) as caught:
        recipe["train_datset"]
    assert isinstance(caught.value, InvalidRecipe)
    assert isinstance(caught.value, QuireError)
    assert "did you mean 'train_dataset'?" in str(caught.value)
    assert recipe.get("nothing") is None


# The package


def test_without_jinja_the_error_says_what_to_install(write):
    code = (
        "import sys; sys.modules['jinja2'] = None\n"
        "import quire\n"
        "try: quire.load_recipe(sys.argv[1])\n"
        "except quire.errors.MissingDependency as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(write("a: 1\n"))],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == (
        "a recipe needs jinja2, which is not installed; run: pip install 'quire-pack[hf]'\n"
    )


def test_the_templates_ship_inside_the_package():
    assert shipped_names() == ["types/training_script/causal_lm/causal_lm.yaml"]
    assert SHIPPED.parent.name == "recipes"
