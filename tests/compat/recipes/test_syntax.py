"""Line statements, sections and comments, and what Jinja makes of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.compat.recipes.syntax import DEFAULT_PARENT, as_jinja


@pytest.mark.parametrize(
    ("line", "jinja"),
    [
        ("-- if a", "{% if a %}"),
        ("    -- if a:  ", "{% if a: %}"),
        ("<< endif", "{%- endif %}"),
        (">> endif", "{% endif -%}"),
        ("== super()", "{{ super() }}"),
        ("    == super()", "{{ super() }}"),
        ("=> super()", "{{ super() -}}"),
        ("## all of it", ""),
        ("a: 1 ## the rest", "a: 1"),
        ("a: 1 ### the rest", "a: 1"),
        ("-- if a ## the rest", "{% if a %}"),
        ('a: "1 ## 2"', 'a: "1 ## 2"'),
        ("a: '1 ## 2' ## two", "a: '1 ## 2'"),
        ("a: b##c", "a: b##c"),
        ("a: 1 # yaml's own", "a: 1 # yaml's own"),
        ("    <<: *merged", "    <<: *merged"),
        ("---", "---"),
        ("- - 1", "- - 1"),
        ("a: [b]", "a: [b]"),
        ("--", "--"),
    ],
)
def test_a_line_becomes_jinja_or_stays_as_it_is(line, jinja):
    assert as_jinja(line) == jinja


def test_sections_end_where_the_next_one_begins():
    text = "-- extends 'p'\n[one]\na: 1\n\n[two]\nb: 2\n"
    assert as_jinja(text).split("\n") == [
        "{% extends 'p' %}",
        "{% block one %}",
        "a: 1",
        "",
        "{% endblock one %}{% block two %}",
        "b: 2",
        "{% endblock two %}",
    ]


def test_indented_sections_are_nested_in_the_one_before():
    text = "x: 1\n[all]\n    [one]\na: 1\n    [two]\nb: 2\n[rest]"
    assert as_jinja(text).split("\n")[1:] == [
        "{% block all %}",
        "{% block one %}",
        "a: 1",
        "{% endblock one %}{% block two %}",
        "b: 2",
        "{% endblock two %}{% endblock all %}{% block rest %}{% endblock rest %}",
    ]


def test_a_recipe_that_opens_with_a_section_has_the_default_parent():
    assert as_jinja("# said\n## unsaid\n\n[one]").startswith(f'{{% extends "{DEFAULT_PARENT}" %}}')


@pytest.mark.parametrize(
    "text", ["a: 1\n[one]", "-- extends 'p'\n[one]", "-- block one\n[two]", ""]
)
def test_any_other_recipe_has_the_parent_that_it_names(text):
    assert DEFAULT_PARENT not in as_jinja(text)


def test_jinja_comments_over_several_lines_are_kept():
    text = "{#\n[one]\n-- if\n## no\n#}\na: 1\n{# [x] #}\n-- if a"
    assert as_jinja(text) == "{#\n[one]\n-- if\n## no\n#}\na: 1\n{# [x] #}\n{% if a %}"


@given(st.text(alphabet="ab: -<=>[]#{}'\"\n", max_size=80))
def test_every_line_keeps_its_number(text):
    assert as_jinja(text).count("\n") == text.count("\n")
