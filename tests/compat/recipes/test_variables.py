"""Variables that a recipe does not use are refused."""

from __future__ import annotations

import pytest

from quire.compat.recipes.rendering import variables_used
from quire.errors import InvalidRecipe


@pytest.mark.parametrize(
    "text",
    [
        "a: !var seed\n",
        'a: !var "seed"\n',
        "a: !var {name: seed, default: 1}\n",
        "a: !var {default: 1, name: 'seed'}\n",
        "a: !var [seed, 1]\n",
        "a: !var\n  name: seed\n  default: 1\n",
        ".define: &x !var seed\nb: *x\n",
        "a: {{ seed }}\n",
        "a: {{ seed | default(1) }}\n",
        "-- if seed is defined\na: 1\n-- endif\n",
        "-- if 0\na: !var seed\n-- endif\n",
        "-- if 0\na: !var {default: 1, name: seed}\n-- endif\n",
        '-- set prefix = "se"\na: !var {{ prefix }}ed\n',
        '-- include "part.yaml"\n',
        '-- if 0\n-- include "part.yaml"\n-- endif\n',
        '-- extends "parent.yaml"\n[part]\nb: 1\n',
    ],
)
def test_a_variable_may_be_used_anywhere(load, write, text):
    write("a: {{ seed }}\n", "part.yaml")
    write("a: 1\n-- block part\nb: !var seed\n-- endblock\n", "parent.yaml")
    load(text, seed=3)
    with pytest.raises(InvalidRecipe, match="unknown variable 'sed'; did you mean 'seed'"):
        load(text, seed=3, sed=4)


def test_the_error_names_the_file_the_known_variables_and_the_remedy(load):
    with pytest.raises(InvalidRecipe) as caught:
        load("a: !var seed\nb: !var {name: size, default: 1}\n", sizes=3, seed=1)
    problem, remedy = str(caught.value).split("\n")
    assert problem.endswith(": unknown variable 'sizes'; did you mean 'size'? known: seed, size")
    assert remedy == 'remove it, or use it: !var "sizes"'


def test_a_recipe_without_variables_says_so(load):
    with pytest.raises(InvalidRecipe, match="'seed'; the recipe uses no variables"):
        load("a: 1\n", seed=1)


def test_names_of_the_recipe_and_of_jinja_are_not_variables(write):
    text = "-- set x = 1\n-- for i in range(2)\na{{ i }}: {{ x + loop.index + size }}\n-- endfor\n"
    assert variables_used(write(text)) == {"size"}
    child = write('-- extends "parent.yaml"\n[part]\n== super()\nb: {{ y }}\n', "child.yaml")
    write("a: 1\n-- block part\nc: 1\n-- endblock\n", "parent.yaml")
    assert variables_used(child) == {"y"}


def test_a_template_in_a_branch_that_is_not_taken_may_be_broken(load, write):
    write("{{ ", "broken.yaml")
    text = '-- if 0\n-- include "broken.yaml"\n-- include "gone.yaml"\n-- endif\na: !var seed\n'
    assert load(text, seed=3)["a"] == 3
    with pytest.raises(InvalidRecipe, match="unknown variable 'x'"):
        load(text, seed=3, x=1)


def test_the_remedy_for_a_missing_variable_covers_programs_and_commands(load):
    with pytest.raises(InvalidRecipe, match=r"variables=\{'seed': …\}\), or --var seed=… on the"):
        load("a: !var seed\n")["a"]
    with pytest.raises(InvalidRecipe, match=r"variables=\{…\}, or --var name=… on the command"):
        load("a: {{ seed }}\n")
