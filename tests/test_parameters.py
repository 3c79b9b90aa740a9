"""Parameters: read from the cell as written, overridden strictly, in the promised order."""

import pytest

from rocmlab import parameters
from rocmlab.cli import UsageError

CELL = """
run_dir: str = ""  # folder of this run
arch: str = "auto"  # gfx target
new_tokens: int = 256  # tokens
limit: int | None = None  # tokens, none: no limit
share: float = 0.5
path: str = "a/x=1"  # a default that contains "="
dtype: Literal["float16", "float32", "auto"] = "auto"
mode: "int | str" = 3
prompts: list[int] = [
    16,
    128,  # tokens
]
cards: dict[str, dict[str, float]] = {"gfx1032": {"gbs": 280.0, "gib": 8}}
strict: bool = False
seen: typing.Optional[str] = None
BATCH = 1
total_s = 60 * 60
a = b = "x"
"""


def notebook(source: str = CELL, tags: list[str] | None = None) -> dict:
    tags = ["parameters"] if tags is None else tags
    return {"cells": [{"cell_type": "code", "source": source, "metadata": {"tags": tags}, "outputs": []}]}


@pytest.fixture(scope="module")
def declared() -> dict[str, parameters.Parameter]:
    return parameters.declared(notebook())


def merged(declared: dict, *layers: parameters.Layer) -> dict:
    return parameters.merge(declared, list(layers))[0]


def settings(*pairs: str) -> parameters.Layer:
    return parameters.from_settings(list(pairs))


def file(tmp_path, text: str | bytes, name: str = "mine.yaml") -> parameters.Layer:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return parameters.from_file(path)


def test_every_form_of_declaration_is_seen(declared):
    assert list(declared) == [
        *("run_dir", "arch", "new_tokens", "limit", "share", "path", "dtype", "mode", "prompts", "cards"),
        *("strict", "seen", "BATCH", "total_s", "a", "b"),
    ]
    assert declared["path"].default == "a/x=1"
    assert declared["prompts"].default == [16, 128]
    assert declared["total_s"].default == "60 * 60" and not declared["total_s"].literal


def test_a_list_of_lines_is_source_too():
    lines = notebook()
    lines["cells"][0]["source"] = ["a: int = 1\n", "b: int = 2"]
    assert list(parameters.declared(lines)) == ["a", "b"]


@pytest.mark.parametrize(
    ("pair", "value"),
    [
        ("arch=1032", "1032"),
        ("arch=007", "007"),
        ("arch=12e45678", "12e45678"),
        ("arch=", ""),
        ("arch=null", "null"),
        ("path=b/y=2", "b/y=2"),
        ("path=C:\\new folder", "C:\\new folder"),
        ("new_tokens=64", 64),
        ("new_tokens=1_000", 1000),
        ("limit=null", None),
        ("limit=5", 5),
        ("share=1e-3", 0.001),
        ("share=2", 2.0),
        ("dtype=float16", "float16"),
        ("mode=7", 7),
        ("mode=fast", "fast"),
        ("prompts=[1, 2]", [1, 2]),
        ("prompts=[]", []),
        ("strict=yes", True),
        ("seen=null", None),
        ("seen='null'", "null"),
        ("seen=123", "123"),
        ("BATCH=8", 8),
        ("total_s=10", 10),
        ("a=3", "3"),
    ],
)
def test_a_value_is_what_its_annotation_says(declared, pair, value):
    found = merged(declared, settings(pair))[pair.partition("=")[0]]
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        ("new_tokens=many", "a whole number"),
        ("new_tokens=6.5", "a whole number"),
        ("new_tokens='64'", 'the text "64"'),
        ("new_tokens=[64]", "not a list"),
        ("share=nan", "a finite number"),
        ("share=1e999", "a finite number"),
        ("share=.inf", "a finite number"),
        ("limit=soon", "null or a whole number"),
        ("dtype=float8", "one of float16, float32, auto"),
        ("prompts=5", "a list"),
        ("prompts=[a]", "a whole number"),
        ("cards=[1]", "keys and values"),
        ("strict=maybe", "true or false"),
        ("BATCH=x", "a whole number"),
    ],
)
def test_a_value_of_another_type_is_one_sentence(declared, pair, expected):
    with pytest.raises(UsageError) as caught:
        merged(declared, settings(pair))
    assert expected in str(caught.value) and "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"--set: {pair.partition('=')[0]}")


def test_later_layers_win_and_dictionaries_merge_deeply(declared, tmp_path):
    first = file(tmp_path, "new_tokens: 64\nshare: 0.25\ncards: {gfx1032: {gbs: 250}, gfx1100: {gbs: 800}}\n")
    second = file(tmp_path, "new_tokens: 32\ncards:\n  gfx1100:\n    gib: 20\n")
    values, overridden = parameters.merge(declared, [first, second, settings("new_tokens=16")])
    assert values["new_tokens"] == 16 and values["share"] == 0.25 and values["arch"] == "auto"
    assert values["cards"] == {"gfx1032": {"gbs": 250.0, "gib": 8}, "gfx1100": {"gbs": 800.0, "gib": 20.0}}
    assert set(overridden) == {"new_tokens", "share", "cards"}


def test_files_keep_texts_as_texts(declared, tmp_path):
    layer = file(tmp_path, 'arch: 1032\npath: 12:30:00\nseen: "7"\nstrict: on\nshare: 1e5\n')
    values = merged(declared, layer)
    assert (values["arch"], values["path"], values["seen"]) == ("1032", "12:30:00", "7")
    assert values["strict"] is True and values["share"] == 100000.0


def test_only_declared_keys_reach_a_notebook():
    narrow = parameters.declared(notebook("new_tokens: int = 1"))
    assert parameters.merge(narrow, [settings("new_tokens=2", "arch=gfx1032")]) == (
        {"new_tokens": 2},
        {"new_tokens": 2},
    )


def test_an_unknown_key_is_refused_with_a_suggestion(declared):
    other = parameters.declared(notebook("batch_sizes: list[int] = [1]"))
    house = {"03": declared, "05": other}
    parameters.refuse_unknown([settings("batch_sizes=[2]", "arch=x")], house)
    with pytest.raises(UsageError, match=r"--set: .* called new_token; did you mean new_tokens\?"):
        parameters.refuse_unknown([settings("new_token=3")], house)
    with pytest.raises(UsageError, match=r"called zzz\. Declared are: .*batch_sizes"):
        parameters.refuse_unknown([settings("zzz=3")], house)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a: [1, 2\nb: 3\n", "not valid YAML in line"),
        ("a: 1\n\tb: 2\n", "not valid YAML in line 2"),
        ("just words\n", "expected lines of the form"),
        ("- a\n- b\n", "found a list"),
        ("a: 1\na: 2\n", "a stands there twice"),
        ("a: !!python/object:os.system {}\n", "not valid YAML"),
        ("? [a, b]\n: 1\n", "a key is no text"),
        ("b: *nobody\n", "not valid YAML"),
        ("b: &x [*x]\n", "recursive"),
        ("参数: 1\n".encode("gbk"), "not UTF-8"),
        (b"a: \x00\x01\n", "not valid YAML"),
    ],
)
def test_a_damaged_file_is_one_sentence(tmp_path, content, said):
    with pytest.raises(UsageError) as caught:
        file(tmp_path, content)
    assert said in str(caught.value) and "\n" not in str(caught.value) and "mine.yaml" in str(caught.value)


def test_a_missing_file_names_the_nearest(tmp_path):
    (tmp_path / "gfx1032.yaml").write_text("", encoding="utf-8")
    with pytest.raises(UsageError, match=r"did you mean gfx1032\.yaml\?"):
        parameters.from_file(tmp_path / "gfx1023.yaml")
    with pytest.raises(UsageError, match="is a folder"):
        parameters.from_file(tmp_path)


@pytest.mark.parametrize("content", ["", "# only a comment\n", "\ufeffnew_tokens: 3\n", "---\n"])
def test_empty_files_and_marks_are_fine(tmp_path, content):
    assert file(tmp_path, content).values in ({}, {"new_tokens": "3"})


@pytest.mark.parametrize("text", ["new_tokens", "=3", "new tokens=3", "--x=1"])
def test_a_setting_without_a_key_is_refused(text):
    with pytest.raises(UsageError, match="expected KEY=VALUE"):
        settings(text)


def test_a_broken_parameters_cell_is_one_sentence():
    with pytest.raises(UsageError, match=r"07_x.ipynb: its parameters cell is not valid Python \(line 1"):
        parameters.declared(notebook("a: int = = 1"), "07_x.ipynb")


def test_no_tag_no_parameters():
    assert parameters.declared(notebook(tags=["other"])) == {}
