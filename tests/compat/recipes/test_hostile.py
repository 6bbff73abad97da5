"""Malicious or wrong recipes: a typed error of two lines, and nothing else happens.

Fault 51: a name in a tag is looked up in a closed table, never imported because a file says so.
"""

from __future__ import annotations

import pytest

from quire.compat.recipes import load_recipe
from quire.errors import InvalidRecipe, QuireError


def refusal(load, text: str, **variables) -> str:
    """The two lines with which a recipe is refused, when it is loaded or when it is built."""
    with pytest.raises(QuireError) as caught:
        dict(load(text, **variables))
    assert isinstance(caught.value, InvalidRecipe), caught.value
    said = str(caught.value)
    assert len(said.split("\n")) == 2
    assert all(said.split("\n"))
    return said


def doubled(expression: str) -> str:
    start = "-- set ns = namespace(x='aaaa')\n-- for i in range(100)\n"
    return f"{start}{expression}\n-- endfor\na: 1"


@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "subprocess:run",
        "builtins:eval",
        "eval",
        "quire.compat.recipes.names:register_name",
        "quire:pack_corpus",
        "quire.blocks:warnings.warn",
        "/srv/module.py:function",
        "recipe_module:run",
        "operator:attrgetter",
    ],
)
@pytest.mark.parametrize("tag", ["partial", "singleton", "factory", "call"])
def test_fault_51_a_name_outside_the_table_is_never_imported(load, write, name, tag):
    write("raise SystemExit('imported')", "recipe_module.py")
    said = refusal(load, f"good: 1\na: !{tag}:{name} [x]\n")
    assert f"line 2: target 'a': unknown name '{name}'" in said
    assert "register_name" in said


@pytest.mark.parametrize(
    ("tag", "message"),
    [
        ("!!python/object/apply:os.system [ls]", "unknown tag '!!python/object/apply:os.system'"),
        ("!!python/name:os.system", "unknown tag"),
        ("!!binary aGk=", "unknown tag '!!binary'"),
        ("!!set {a, b}", "unknown tag '!!set'"),
        ("!sigleton:quire:Bin [8]", "unknown tag '!sigleton:quire:Bin'"),
        ("!dict:os {}", "unknown tag"),
        ("!partial:quire:block_tokenise_fn", "did you mean 'quire:block_tokenize_fn'?"),
        ("!partial", "!partial does not name what to call"),
        ("!dict [1]", "!dict needs a mapping, not a sequence"),
        ("!list {a: 1}", "!list needs a sequence, not a mapping"),
        ("!var", "!var does not name a variable"),
        ("!var {nam: x}", "!var does not name a variable"),
        ("!var [x, 1, 2]", "!var does not name a variable"),
        ("!var x", "the variable 'x' is not given and has no default"),
        ("!target b", "unknown target 'b'; known: a"),
        ("!target a", "needs itself: a -> a"),
        ("!singleton:quire:ByteTokenizer 3", "the arguments are '3'"),
        ("!singleton:quire:ByteTokenizer {byte_ofset: 3}", "did you mean 'byte_offset'?"),
        ("!singleton:quire:ByteTokenizer {byte_offset: -3}", "byte_offset is -3 but must be >= 0"),
        ("!singleton:quire:ByteTokenizer [1, 2]", "too many positional arguments"),
        ("!singleton:quire:Bin {args: {x: 1}}", "args is not a list"),
        ("!singleton:quire:Bin {1: 2}", "a key of kwargs is not a name"),
        ("!dict {<<: [1]}", "<< merges something that is not a mapping"),
        ("!dict {[1]: 2}", "a key is a collection"),
        ("9" * 5000, "Exceeds the limit"),
    ],
)
def test_a_tag_that_cannot_be_built_names_its_target_and_line(load, tag, message):
    said = refusal(load, f"# one\n# two\na: {tag}\n")
    assert "recipe.yaml, line 3: target 'a': " in said
    assert message in said


@pytest.mark.parametrize(
    "expression",
    [
        "''.__class__",
        "''.__class__.__mro__[1].__subclasses__()",
        "''['__class__']",
        "'{0.__class__}'.format(1)",
        "'{0.__class__}'.format_map({})",
        "range.__globals__",
        "namespace.__init__.__globals__",
        "self.__init__",
        "self._TemplateReference__context",
        "m.__class__",
        "m._func",
        "().__class__",
        "namespace(a=1).__class__",
        "x.__len__",
        "10 ** 10 ** 10",
        "'a' * 1000000000",
        "[1] * 1000000000",
        "99999999999999999999 * 99999999999999999999",
        "'%1000000000d' % 1",
        "'a'.center(1000000000)",
        "'a'.encode()",
        "range(1000000000)",
        "[].append(1)",
        "x.pop()",
    ],
)
def test_jinja_that_uses_more_than_is_allowed_is_refused(load, expression):
    macro = "-- macro m()\nx\n-- endmacro\n-- set x = [1]\n"
    said = refusal(load, f"{macro}a: {{{{ {expression} }}}}\n")
    assert "recipe.yaml, line 5: not allowed in a recipe: " in said


@pytest.mark.parametrize("part", ["_context", "_stack", "__class__", "__call__.__globals__"])
def test_templates_cannot_read_private_attributes_of_a_parent_s_block(load, write, part):
    write("-- block b\na: 1\n-- endblock\n", "p.yaml")
    said = refusal(load, f"-- extends 'p.yaml'\n[b]\nb: {{{{ super.{part} }}}}\n")
    assert "recipe.yaml, line 3: not allowed in a recipe: " in said


@pytest.mark.parametrize("part", ["_iterator", "_undefined", "__class__", "__init__.__globals__"])
def test_templates_cannot_read_private_attributes_of_a_loop(load, part):
    said = refusal(load, f"-- for i in [1]\na: {{{{ loop.{part} }}}}\n-- endfor\n")
    assert "recipe.yaml, line 2: not allowed in a recipe: " in said


@pytest.mark.parametrize(
    "call",
    [
        "!partial:quire:block_tokenize_fn {tokenizer: ../t.json}",
        "!partial:quire:block_tokenize_fn [{text: [x]}, ../t.json]",
        "!singleton:quire:block_tokenize_fn {args: [{text: [x]}, ../t.json, text]}",
        "!singleton:quire:pack_dataset [[{text: x}], ../t.json]",
        "!singleton:quire.compat.recipes:load_tokenizer [../t.json]",
        "!singleton:transformers:AutoTokenizer.from_pretrained [..]",
        "!factory:forgather.ml.data_collator:DataCollatorForCausalLM [../t.json]",
    ],
)
def test_a_tokenizer_outside_the_folder_is_refused_wherever_it_is_named(load, write, call):
    write("{}", "../t.json")
    assert "is outside the recipe's folder" in refusal(load, f"a: {call}\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: {{ ''|attr('__class__') }}", "No filter named 'attr'"),
        ("a: {{ 'a'|center(1000000000) }}", "No filter named 'center'"),
        ("a: {{ lipsum(10) }}", "'lipsum' is undefined"),
        ("a: {{ cycler }}", "'cycler' is undefined"),
        ("a: {{ 1 // 0 }}", "division"),
        ("a: {{ 1 + 'a' }}", "unsupported operand"),
        ("a: {{ [][3] }}", "line 1"),
        ("a: {{ what }}", "'what' is undefined"),
        ("a: {{ \n", "unexpected 'end of template'"),
        ("a: 1\n-- if\n", "line 2: not a template"),
        ("-- do 1\n", "unknown tag 'do'"),
        ("a: {{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "nested too deep"),
        ("-- for i in [1]\n" * 30 + "-- endfor\n" * 30, "too many statically nested blocks"),
        ("-- for i in range(9999)\n-- for j in range(9999)\n-- endfor\n-- endfor\n", "20000 steps"),
        ("-- macro m(n)\n{{ m(n) }}\n-- endmacro\na: {{ m(1) }}", "nested too deep"),
        (
            "-- macro m(n)\n{% if n %}{{ m(n-1) }}{{ m(n-1) }}{% endif %}\n-- endmacro\n"
            "a: {{ m(60) }}",
            "20000 steps",
        ),
        ("-- block x\na: {{ self.x() }}\n-- endblock\n", "nested too deep"),
        ("-- include 'recipe.yaml'\n", "nested too deep"),
        ("-- for i in range(999)\n" + "x" * 30_000 + "\n-- endfor\n", "characters"),
        (doubled("-- set ns.x = ns.x + ns.x"), "characters"),
        (doubled("-- set ns.x = ns.x ~ ns.x"), "characters"),
        (doubled("-- set ns.x = [ns.x, ns.x]"), "characters"),
        (doubled("-- set ns.x = (ns.x, ns.x)"), "characters"),
        (doubled("-- set ns.x = {'a': ns.x, 'b': ns.x}"), "characters"),
        (doubled("{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}"), "characters"),
        (doubled("-- set ns.x = [ns.x, ns.x] | list"), "characters"),
        ("a: \ue000x:1\ue001", "contains U+E000"),
        ("a: " + "x" * 70_000, "has more than 65536 bytes"),
    ],
)
def test_a_template_that_is_wrong_or_endless_is_refused(load, text, message):
    assert message in refusal(load, text)


def aliases(form: str) -> str:
    pairs = zip("abcdefgh", "bcdefghi", strict=True)
    lines = "".join(f"{new}: &{new} {form.replace('OLD', f'*{old}')}\n" for old, new in pairs)
    return f"a: &a {{x: 1}}\n{lines}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (aliases("[OLD,OLD,OLD,OLD,OLD,OLD,OLD,OLD]"), "more than 20000 values"),
        (aliases("{<<: [OLD,OLD,OLD,OLD,OLD,OLD,OLD,OLD]}"), "more than 20000 values"),
        ("a: &a [*a]", "an alias inside its own anchor"),
        ("a: &a {b: {c: *a}}", "an alias inside its own anchor"),
        ("a: " + "[" * 500 + "]" * 500, "nested more than 40 deep"),
        ("a: " + "{b: " * 500, "nested more than 40 deep"),
        ("a: [" + "1," * 25_000 + "1]", "more than 20000 values"),
        ("-- for i in range(4500)\na{{ i }}: [1, 2, 3]\n-- endfor\n", "more than 20000 values"),
        ("a: *b", "*b has no anchor before it"),
        ("a: &b 1\nc: &b 2", "duplicate anchor"),
        ("a: [1", "not YAML"),
        ("a: 1\n b: 2", "line 2: not YAML"),
        ("a: \0", "not YAML: unacceptable character"),
        ("a: 1\n---\nb: 2", "not YAML"),
        ("- 1", "a recipe is a mapping of names to targets"),
        ("!singleton:quire:Bin [8]", "a recipe is a mapping of names to targets"),
        ("[1]: 2", "a target has no name"),
        ("<<: {a: 1}", "<< at the top"),
    ],
)
def test_yaml_that_is_wrong_or_endless_is_refused(load, text, message):
    assert message in refusal(load, text)


@pytest.mark.parametrize("line", [" " * 60_000, "# " * 30_000, "'## " * 15_000, "{#" * 30_000])
def test_long_lines_are_read_quickly(load, line):
    """A quadratic pattern would take minutes here."""
    assert "recipe.yaml" in refusal(load, f"a: !oops 1\n{line}\n") or line.startswith("'")


def test_the_limits_leave_room_for_real_recipes(load):
    many = "".join(f"t{i}: {{a: [1, 2, 3], b: 'a text'}}\n" for i in range(900))
    assert len(load(many)) == 900
    assert len(load("-- for i in range(2000)\nt{{ i }}: {{ i }}\n-- endfor\n")) == 2000


# Parents


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("-- extends '../p.yaml'\n", "leaves the folder of templates"),
        ("-- extends 'a/../../p.yaml'\n", "leaves the folder of templates"),
        ("-- extends '/etc/passwd'\n", "leaves the folder of templates"),
        ("-- extends 'C:\\\\p.yaml'\n", "leaves the folder of templates"),
        ("-- extends ''\n", "leaves the folder of templates"),
        ("-- extends 'link.yaml'\n", "is a link that leads out of its folder"),
        ("-- extends 'folder/p.yaml'\n", "is a link that leads out of its folder"),
        ("-- extends 'nothing.yaml'\n", "there is no template 'nothing.yaml'"),
        ("-- extends 'recipe.yaml'\n", "extends itself: recipe.yaml -> recipe.yaml"),
        ("-- extends 'round.yaml'\n", "extends itself: recipe.yaml -> round.yaml -> recipe.yaml"),
        ("-- extends 'p' + '.yaml'\n", "the parent's name is computed"),
        ("-- extends 'in.yaml'\n-- extends 'in.yaml'\n", "extends inside a condition, or twice"),
        ("-- if True\n-- extends 'in.yaml'\n-- endif\n", "extends inside a condition, or twice"),
        ("-- extends 'in.yaml'\n[twoo]\nb: 1\n", "unknown block 'twoo'; did you mean 'two'?"),
        ("-- extends 'in.yaml'\nb: 1\n[two]\n", "'b: 1' is outside every block"),
        ("-- extends 'in.yaml'\n{{ 1 }}\n", "is outside every block"),
        ("[no_such_section]\na: 1\n", "unknown block 'no_such_section'"),
        ("-- include '../p.yaml'\n", "leaves the folder of templates"),
        ("-- include 'link.yaml'\n", "is a link that leads out of its folder"),
        ("-- include 'nothing.yaml'\n", "there is no template 'nothing.yaml'"),
        ("-- import '/etc/passwd' as x\n", "leaves the folder of templates"),
    ],
)
def test_a_parent_is_in_the_recipe_s_folder_or_ships_with_quire(load, write, text, message):
    outside = write("a: 1\n", "../p.yaml")
    (write("", "x").with_name("link.yaml")).symlink_to(outside)
    (write("", "x").with_name("folder")).symlink_to(outside.parent)
    write("-- extends 'recipe.yaml'\n", "round.yaml")
    write("-- block two\nb: 1\n-- endblock\n", "in.yaml")
    said = refusal(load, text)
    assert message in said
    assert ", line " in said


def test_an_error_in_a_parent_names_the_parent_s_line(load, write):
    write("a: 1\n\n-- block b\nb: !singleton:os:getcwd\n-- endblock\n", "p.yaml")
    assert "p.yaml, line 4: target 'b': unknown name" in refusal(load, "-- extends 'p.yaml'\n")
    write("a: 1\n\n-- block b\nb: {{ nothing }}\n-- endblock\n", "p.yaml")
    assert "p.yaml, line 4: 'nothing' is undefined" in refusal(load, "-- extends 'p.yaml'\n")


def test_an_error_after_super_names_its_own_line(load, write):
    write("-- block b\nb: !dict\n    x: 1\n-- endblock\n", "p.yaml")
    text = "-- extends 'p.yaml'\n\n[b]\n    == super()\n    y: 2\n    z: !oops 3\n"
    assert "recipe.yaml, line 6: target 'b': unknown tag '!oops'" in refusal(load, text)


def test_an_error_in_the_template_that_ships_names_it(load):
    said = refusal(load, "[map_function]\n.define: &other 3\n")
    assert "quire:types/training_script/causal_lm/causal_lm.yaml, line " in said
    assert "*map_function has no anchor before it" in said


# Files


def test_a_recipe_that_is_not_a_text_file_is_refused(tmp_path):
    with pytest.raises(InvalidRecipe, match="there is no such recipe\ngive the path"):
        load_recipe(tmp_path / "none.yaml")
    with pytest.raises(InvalidRecipe, match="there is no such recipe"):
        load_recipe(tmp_path)
    (tmp_path / "r.yaml").write_bytes(b"a: \xff\n")
    with pytest.raises(InvalidRecipe, match="is not UTF-8: invalid start byte at byte 3"):
        load_recipe(tmp_path / "r.yaml")


@pytest.mark.parametrize("variables", [{"a b": 1}, {3: 1}, {"a": "\ue000x:1\ue001"}])
def test_a_variable_that_a_template_cannot_have_is_refused(write, variables):
    with pytest.raises(QuireError, match="the variable"):
        load_recipe(write("a: 1\n"), variables)


LONG = (
    "-- set x = 'y' * 9999\n-- set x = x ~ x ~ x ~ x ~ x ~ x ~ x ~ x\n"
    "-- set a = x ~ x ~ 'p'\n-- set b = x ~ x ~ 'p'\n"
)


@pytest.mark.parametrize(
    "statement",
    [
        "{% if a == b %}{% endif %}",
        "{% if 1 < 2 < 3 and a != b %}{% endif %}",
        "{% if 'q' in a %}{% endif %}",
        "{% if a is eq(b) %}{% endif %}",
        "{% if a is upper %}{% endif %}",
        "{% if a[1:] %}{% endif %}",
        "{% if a | length %}{% endif %}",
        "{% if a | float %}{% endif %}",
        "{% if a %}{% endif %}",
        "{% set c = a %}",
        "{{ 1 if a else 2 }}",
    ],
)
def test_every_operation_in_a_loop_is_charged(load, statement):
    """A recipe of 58 KB kept `load_recipe` busy for minutes: its comparisons cost nothing."""
    text = f"{LONG}-- for i in range(10000)\n{statement * 100}\n-- endfor\nk: 1\n"
    assert "the template handles more than 1048576 characters" in refusal(load, text)


def test_a_loop_of_conditions_as_in_real_recipes_fits_the_budget(load):
    turns = (
        "-- for i in range(5000)\n-- if i % 100 == 7 and i is odd\nk{{ i }}: {{ i }}\n-- endif\n"
    )
    assert len(dict(load(f"{turns}-- endfor\n"))) == 50
