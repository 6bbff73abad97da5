"""Any text is a recipe that loads, or is refused by a typed error."""

from __future__ import annotations

import contextlib

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quire.compat.recipes import load_recipe
from quire.compat.recipes.rendering import variables_used
from quire.errors import InvalidRecipe

PIECES = [
    "a: ", "b: ", ".define: ", "&x ", "*x", "!var ", "!var y", "!dict ", "!list ", "!target a",
    "!partial:quire:block_tokenize_fn ", "!singleton:quire:ByteTokenizer ", "!factory:quire:Bin ",
    "!x ", "!!int ", "{", "}", "[", "]", ", ", "1", "-1.5", "text", "'", '"', "null", "<<: *x",
    "\n", "\n", "\n    ", "- ", "? ", "| ", "> ", "# ", "## ", "-- if a\n", "-- endif\n", "== a\n",
    "-- for i in [1, 2]\n", "-- endfor\n", "-- block c\n", "-- endblock\n", "[map_function]\n",
    "[tokenizer]\n", "== super()\n", "-- extends 'p.yaml'\n", "-- set a = 1\n", "{{ a }}", "{% ",
    "%}", "{#", "#}", "{{ i * 3 }}", "{{ loop.index }}", "\t", "\r\n", "---\n", "...\n", "é", "\0",
    "\u2028", "%YAML 1.1\n", "@", "`", "{{ a.b }}", "{{ a['b'] }}", "{{ [a, a] | length }}",
]  # fmt: skip


@settings(
    deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=25))
def test_a_recipe_of_any_pieces_loads_or_is_refused(pieces, write):
    write("-- block c\nc: 1\n-- endblock\n", "p.yaml")
    file = write("".join(pieces))
    with contextlib.suppress(InvalidRecipe):
        given = {"y": 3, "tokenizer": "byte"}
        recipe = load_recipe(file, {name: given[name] for name in variables_used(file) & {*given}})
        for target in recipe:
            with contextlib.suppress(InvalidRecipe):
                recipe[target]


@settings(
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.binary(max_size=60))
def test_a_recipe_of_any_bytes_loads_or_is_refused(data, tmp_path):
    file = tmp_path / "recipe.yaml"
    file.write_bytes(data)
    with contextlib.suppress(InvalidRecipe):
        dict(load_recipe(file))
