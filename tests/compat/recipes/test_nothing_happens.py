"""What a recipe does to the machine, observed by the interpreter's audit hook.

A recipe opens its own files and nothing else, writes none, starts no process, opens no socket.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROBE = """
import json, os, sys
from pathlib import Path

import quire.compat.recipes
from quire.compat.recipes.rendering import SHIPPED

folder = Path(sys.argv[1])
variables = {"tokenizer": "byte", "dataset": "data.jsonl"}
heard = {"opened": [], "written": [], "else": []}
LOUD = ("socket.", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.spawn",
        "shutil.", "os.remove", "os.rename", "os.mkdir", "ctypes.dlopen", "pty.", "urllib.")

def run(name):
    try:
        given = variables if name == "good.yaml" else {}  # the others ask for none
        recipe = quire.compat.recipes.load_recipe(folder / name, given)
        return {target: str(recipe[target])[:20] for target in recipe}
    except quire.errors.QuireError as error:
        return f"{type(error).__name__}: {error}"

def hear(event, arguments):
    if not listening:
        return
    if event == "open":
        path, mode, flags = arguments
        if isinstance(path, int):
            return
        writes = (flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        heard["written" if writes else "opened"].append(os.path.realpath(os.fspath(path)))
    elif event.startswith(LOUD):
        heard["else"].append([event, str(arguments)[:200]])

run("good.yaml")  # imports what is needed, once
listening = True
sys.addaudithook(hear)
results = {name: run(name) for name in json.loads(sys.argv[2])}
listening = False
print(json.dumps({"heard": heard, "results": results, "shipped": str(SHIPPED.resolve())}))
"""

GOOD = """\
[map_function]
.define: &map_function !partial:forgather.ml.datasets:block_tokenize_fn
    max_length: 64
    packed: True
"""
HOSTILE = {
    "name.yaml": "a: !singleton:os:system ['touch touched']\n",
    "python.yaml": "a: !!python/object/apply:os.system ['touch touched']\n",
    "class.yaml": "a: {{ ''.__class__.__mro__[1].__subclasses__() }}\n",
    "passwd.yaml": "a: 1\n-- include '/etc/passwd'\n",
    "link.yaml": "a: 1\n-- include 'outside.yaml'\n",
    "tokenizer.yaml": "a: !singleton:quire.compat.recipes:load_tokenizer [/etc/passwd]\n",
    "positional.yaml": "a: !partial:quire:block_tokenize_fn [{text: [x]}, /etc/passwd]\n",
    "dataset.yaml": "a: !singleton:datasets:load_dataset {path: json, data_files: /etc/passwd}\n",
    "pattern.yaml": "a: !singleton:datasets:load_dataset {path: json, data_files: /etc/*.conf}\n",
    "linked.yaml": "a: !singleton:datasets:load_dataset {path: json, data_files: '*.jsonl'}\n",
    "hub.yaml": "a: !singleton:datasets:load_dataset {path: wikitext}\n",
    "model.yaml": "a: !singleton:transformers:AutoTokenizer.from_pretrained [gpt2]\n",
    "nested.yaml": (
        "a: !singleton:quire.compat.recipes:preprocess_dataset\n"
        "    dataset: !singleton:quire.compat.recipes:load_dataset [[{text: x}]]\n"
        "    map_fn: !partial:quire:block_tokenize_fn\n"
        "    fn_kwargs: {tokenizer: /etc/passwd}\n"
    ),
}


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """The events recorded while the good recipe was built again, and all others after it."""
    outside = tmp_path_factory.mktemp("outside") / "outside.jsonl"
    outside.write_text('{"text": "secret"}\n')
    folder = tmp_path_factory.mktemp("recipes")
    (folder / "data.jsonl").write_text('{"text": "a document"}\n' * 20)
    (folder / "good.yaml").write_text(GOOD)
    (folder / "outside.yaml").symlink_to(outside)
    (folder / "z.jsonl").symlink_to(outside)
    for name, text in HOSTILE.items():
        (folder / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(folder), json.dumps(["good.yaml", *HOSTILE])],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


def test_the_good_recipe_is_built_and_every_other_is_refused(outcome):
    _, said = outcome
    assert "train_dataset" in said["results"]["good.yaml"]
    for name in HOSTILE:
        assert said["results"][name].startswith("InvalidRecipe: "), said["results"][name]
        assert "unknown variable" not in said["results"][name]


def test_files_are_opened_only_in_the_recipe_s_folder_and_among_the_templates(outcome):
    folder, said = outcome
    homes = (str(folder), said["shipped"])
    places = {sys.prefix, sys.base_prefix, *(p for p in sys.path if p)}
    libraries = tuple(str(Path(place).resolve()) for place in places)
    opened = said["heard"]["opened"]
    assert str(folder / "good.yaml") in opened
    assert str(folder / "data.jsonl") in opened
    strange = [
        path
        for path in opened
        if not path.startswith(homes)
        and not (path.startswith(libraries) and path.endswith((".py", ".pyc", ".so")))
    ]
    assert strange == []


def test_nothing_is_written_or_started_and_no_network_is_used(outcome):
    folder, said = outcome
    assert said["heard"]["written"] == []
    assert said["heard"]["else"] == []
    assert not (folder / "touched").exists()


def test_a_program_that_is_started_would_be_noticed(tmp_path):
    """The hook itself: a registered function that opens and writes is seen."""
    (tmp_path / "good.yaml").write_text("a: 1\n")
    (tmp_path / "bad.yaml").write_text("a: !singleton:tests:write\n")
    loud = PROBE.replace(
        'run("good.yaml")  #',
        "quire.compat.recipes.register_name(\n"
        "    'tests:write', lambda: Path(folder, 'x').write_text('x'))\n"
        'run("good.yaml")  #',
    )
    done = subprocess.run(
        [sys.executable, "-c", loud, str(tmp_path), json.dumps(["bad.yaml"])],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["heard"]["written"] == [str(tmp_path.resolve() / "x")]
