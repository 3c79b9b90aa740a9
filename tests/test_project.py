"""What holds for the whole checkout: dependencies, files, both languages, encodings, the Makefile."""

import ast
import importlib.metadata
import os
import re
import shutil
import string
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from conftest import NO_CASES
from packaging.requirements import Requirement

from rocmlab import cli, packaged

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "rocmlab"
FORBIDDEN = {"torch", "torchvision", "torchaudio", "triton", "pytorch-triton-rocm", "accelerate", "pytorch"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
BINARY = {".png", ".gz", ".gguf", ".safetensors", ".zip", ".whl", ".bin"}
VERBS = ["report", "check", "read", "model", "lab", "test", "lint", "strip", "clean"]


def name_of(requirement: str) -> str:
    return Requirement(requirement).name.lower().replace("_", "-")


def lists() -> dict[str, list[str]]:
    """Return every dependency list of pyproject.toml."""
    project = PROJECT["project"]
    return {
        "build": PROJECT["build-system"]["requires"],
        "needed": project["dependencies"],
        **project["optional-dependencies"],
    }


def tracked() -> list[Path]:
    """Return the files of this checkout that git knows or would know."""
    command = ["git", "-c", "core.quotepath=off", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", check=True)
    return [ROOT / one for one in done.stdout.split("\0") if one and (ROOT / one).is_file()]


# ---- dependencies


def test_no_list_holds_a_package_that_is_or_replaces_torch():
    for words in lists().values():
        assert not {name_of(one) for one in words} & FORBIDDEN


def test_no_listed_package_brings_torch_either():
    """Follow what the installed packages require, on this system, without their extras."""
    waiting = [name_of(one) for words in lists().values() for one in words]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            wanted = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        needed = [Requirement(one) for one in wanted]
        waiting += [name_of(str(one)) for one in needed if not one.marker or one.marker.evaluate({"extra": ""})]
    assert {"transformers", "papermill", "jupyterlab"} <= seen and len(seen) > 60
    assert not seen & FORBIDDEN


def test_environment_yml_names_no_library_twice_and_agrees_with_pyproject():
    text = (ROOT / "environment.yml").read_text(encoding="utf-8")
    environment = yaml.safe_load(text)
    plain = [one for one in environment["dependencies"] if isinstance(one, str)]
    (pip,) = [one["pip"] for one in environment["dependencies"] if isinstance(one, dict)]
    assert pip == ["-e .[notebooks]"]
    assert [re.split("[<>=]", one)[0] for one in plain] == ["python", "pip"]
    version = next(one for one in plain if one.startswith("python=")).split("=")[1]
    assert f">={version}" == PROJECT["project"]["requires-python"] or version in ("3.11", "3.12", "3.13")
    assert environment["channels"] == ["conda-forge", "nodefaults"]
    libraries = {name_of(one) for key in ("needed", "notebooks") for one in lists()[key]}
    comments = " ".join(line for line in text.splitlines() if line.startswith("#"))
    assert not [name for name in sorted(libraries) if not re.search(rf"\b{re.escape(name)}\b", comments)]
    counts = Counter(name_of(one) for key in ("needed", "notebooks") for one in lists()[key])
    assert not [name for name, count in counts.items() if count > 1]


# ---- both languages


def pairs(value: object, path: str = "") -> Iterator[tuple[str, dict]]:
    """Yield (path, {"en": ..., "zh": ...}) of every place that speaks a language."""
    if isinstance(value, dict):
        if {"en", "zh"} & set(value):
            yield path, value
        for key, item in value.items():
            yield from pairs(item, f"{path}/{key}")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from pairs(item, f"{path}/{number}")


def placeholders(value: object) -> object:
    """Return the shape of a wording: the same keys, and in each sentence the same placeholders."""
    if isinstance(value, dict):
        return {key: placeholders(item) for key, item in value.items()}
    if isinstance(value, list):
        return [placeholders(item) for item in value]
    return {re.split(r"[.\[]", name)[0] for _, name, _, _ in string.Formatter().parse(str(value or "")) if name}


@pytest.mark.parametrize("name", sorted(one.name for one in PACKAGE.glob("*.yaml")))
def test_both_languages_say_the_same(name):
    content = yaml.safe_load((PACKAGE / name).read_text(encoding="utf-8"))
    assert packaged.read(name) == content  # whichever of the two loaders reads it
    for path, words in pairs(content):
        assert set(words) >= {"en", "zh"}, f"{name}{path}: one language is missing"
        assert placeholders(words["en"]) == placeholders(words["zh"]), f"{name}{path}"


def test_every_code_has_a_status_and_a_sort_and_stands_once():
    text = (PACKAGE / "messages.yaml").read_text(encoding="utf-8")
    for code, entry in yaml.safe_load(text).items():
        assert entry["status"] in ("broken", "unknown", "warn", "ok"), code
        assert entry["sort"] in ("fault", "answer", "note", "headline"), code
        assert entry["sort"] != "note" or entry["status"] == "ok", code
        for variant in [entry, *entry.get("variants", {}).values()]:
            for lang in ("en", "zh"):
                assert variant[lang]["sentence"].strip(), f"{code}: no sentence in {lang}"
    codes = re.findall(r"(?m)^([A-Z][A-Z0-9_]*):", text)
    assert len(codes) == len(set(codes))  # a later entry would silently win over the earlier


def test_english_holds_no_chinese_and_can_be_printed_on_a_chinese_console():
    for path, words in pairs(yaml.safe_load((PACKAGE / "messages.yaml").read_text(encoding="utf-8"))):
        assert not re.search("[\u4e00-\u9fff]", str(words["en"])), path
        str(words["en"]).encode("gbk")


# ---- files


def test_files_are_utf8_with_lf_and_their_names_are_legal_on_windows():
    files = tracked()
    assert len(files) > 50
    reserved = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))}
    for path in files:
        relative = path.relative_to(ROOT)
        assert len(str(relative)) < 150, relative
        for part in relative.parts:
            assert not re.search(r'[<>:"|?*\\\x00-\x1f]|[. ]$', part), relative
            assert part.split(".")[0].lower() not in reserved, relative
        data = path.read_bytes()
        if path.suffix not in BINARY and "data" not in relative.parts:
            assert b"\r" not in data, f"{relative} has CR"
            assert data.decode("utf-8") or True
            assert not data or data.endswith(b"\n"), f"{relative} does not end with a line feed"
    lower = Counter(str(path).lower() for path in files)
    assert max(lower.values()) == 1


def unencoded(source: str) -> list[int]:
    """Return the lines where text is read or written without naming its encoding."""
    calls = [one for one in ast.walk(ast.parse(source)) if isinstance(one, ast.Call)]
    return [call.lineno for call in calls if lacks_encoding(call)]


def lacks_encoding(call: ast.Call) -> bool:
    method = isinstance(call.func, ast.Attribute)
    name = call.func.attr if method else getattr(call.func, "id", "")
    owner = getattr(call.func.value, "id", "") if method else ""
    words = {one.arg: one.value for one in call.keywords}
    if "encoding" in words or None in words:
        return False
    if name == "open" and owner not in ("os", "webbrowser", "Image", "zipfile", "tarfile", "gzip", "lzma", "bz2"):
        given = call.args[0 if method else 1 :]
        mode = words.get("mode", given[0] if given else None)
        return not (isinstance(mode, ast.Constant) and "b" in str(mode.value))
    if name in ("run", "Popen", "check_output"):
        return bool({"text", "universal_newlines"} & set(words))
    return method and name in ("read_text", "write_text") and owner != "results"


def test_the_check_for_encodings_sees_what_it_is_for():
    bad = ["open('x')", "path.open()", "open('x', 'w')", "p.read_text()", "p.write_text('a')", "run(['a'], text=True)"]
    assert [unencoded(one) for one in bad] == [[1]] * len(bad)
    good = ["open('x', 'rb')", "path.open('ab')", "p.read_text(encoding='utf-8')", "run(['a'])", "os.open('x', 0)"]
    assert [unencoded(one) for one in good] == [[]] * len(good)


def test_every_text_names_its_encoding():
    found = {}
    for path in [*PACKAGE.rglob("*.py"), *(ROOT / "tests").glob("*.py")]:
        lines = unencoded(path.read_text(encoding="utf-8"))
        if lines:
            found[str(path.relative_to(ROOT))] = lines
    assert not found


def test_every_override_in_params_has_its_reason():
    files = sorted((ROOT / "params").glob("*.yaml"))
    wanted = {"cpu", "tiny", "sm_90", "gfx1030", "gfx1031", "gfx1032", "gfx1100", "gfx1101", "gfx1151", "gfx1200"}
    assert wanted | {"gfx1201"} <= {path.stem for path in files}
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert text.startswith("# ") and isinstance(yaml.safe_load(text), dict), path.name
        for line in text.splitlines():
            reason = re.match(r"\s*[a-z_]+:.*\s#\s\w", line)
            assert line.startswith("#") or reason or path.stem == "tiny", f"{path.name}: {line}"


def test_licence_and_changelog():
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "### Method" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


# ---- the Makefile

needs_make = pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")


def make(*words: str, folder: Path = ROOT, **variables: str) -> str:
    # `make test` runs this: a make inside another would print the folders that it enters.
    outside = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    env = {**outside, **variables}
    done = subprocess.run(["make", *words], cwd=folder, env=env, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_make
def test_make_alone_prints_the_verbs_in_order_of_use():
    lines = make().splitlines()
    assert [line.split()[1] for line in lines] == VERBS
    assert all(len(line) < 120 and len(line.split()) > 4 for line in lines)


@needs_make
def test_variables_reach_the_verbs():
    shown = make("-n", "report", "ARCH=gfx1032", "NAME=my run", "PARAMS=a.yaml b.yaml", "ONLY=01,03", "REPORT_LANG=zh")
    setup, report = shown.splitlines()
    assert '-m rocmlab.install --python "" --torch "" --torch-index "" notebooks' in setup
    assert " ".join(report.partition(" report ")[2].split()) == (
        '--arch "gfx1032" --name "my run" --params a.yaml b.yaml --only "01,03" --lang "zh"'
    )
    assert make("-n", "report", "STRICT=1", "FRESH=1").rstrip().endswith("--strict --fresh")
    assert "--" not in make("-n", "report").splitlines()[1].split("rocmlab.cli report", 1)[1]
    shown = make("-n", "report", "TORCH=cpu", "TORCH_INDEX=https://x/", "PYTHON=/my python/bin/python")
    assert '"/my python/bin/python" -m rocmlab.install --python "/my python/bin/python" --torch "cpu"' in shown
    assert '--torch-index "https://x/"' in shown
    assert 'read "a b.json"' in make("-n", "read", "FILE=a b.json")


@needs_make
def test_the_choice_of_torch_does_not_reach_the_notebooks(tmp_path):
    """They record variables that begin with TORCH; a run would not be resumed after the set-up was named once."""
    folder = tmp_path / "a path 路径"
    folder.mkdir()
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    (folder / "Makefile").write_text(text + "\nshow:\n\t@env\n", encoding="utf-8")
    names = {
        line.split("=")[0] for line in make("show", "TORCH=cpu", "ARCH=gfx1032", folder=folder, FRESH="1").splitlines()
    }
    assert "PATH" in names and not names & {"TORCH", "TORCH_INDEX", "ARCH", "FRESH", "PYTHON"}


@needs_make
def test_each_recipe_is_calls_and_nothing_else():
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    for recipe in re.findall(r"(?m)^\t(.*)$", text):
        assert recipe.startswith("@") and not re.search(
            r"&&|\|\||;|\bif\b|\bfor\b|\$\$\(", recipe.replace("$(if", "")
        ), recipe


# ---- CI


@pytest.mark.parametrize(
    ("reason", "ci", "code"),
    [("chromium is not installed", "true", 1), ("chromium is not installed", "", 0), (NO_CASES, "true", 0)],
)
def test_ci_accepts_no_skipped_test_but_those_of_the_further_cases(tmp_path, reason, ci, code):
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path / "conftest.py")
    text = f"import pytest\ndef test_a(): pass\ndef test_b(): pytest.skip({reason!r})\n"
    (tmp_path / "test_x.py").write_text(text, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        "--rootdir",
        ".",
        "test_x.py",
    ]
    env = {**os.environ, "CI": ci}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, encoding="utf-8")
    assert done.returncode == code, done.stdout
    assert ("no test may be skipped: test_x.py::test_b" in done.stdout) == bool(code)
    assert "1 passed, 1 skipped" in done.stdout.splitlines()[-1]


# ---- the README in both languages


READMES = ("README.md", "README.zh-CN.md")
SPOKEN = {"<card>": "X", "<显卡>": "X", "RUN RUN": "A B", "运行1 运行2": "A B", "FILE ...": "F", "文件 ...": "F"}


def commands(name: str) -> set[str]:
    """Every command of a README, in code spans and blocks, with what stands for a name made alike."""
    text = (ROOT / name).read_text(encoding="utf-8")
    blocks = [line for block in re.findall(r"^```\n(.*?)^```", text, re.S | re.M) for line in block.splitlines()]
    found = {one.strip() for one in [*blocks, *re.findall(r"`([^`\n]+)`", text)]}
    for spoken, plain in SPOKEN.items():
        found = {one.replace(spoken, plain) for one in found}
    return {one for one in found if re.match(r"(?:make|rocmlab|conda|py|\.venv\S*|[A-Z_]{5,}=\S+)(?: |$)", one)} - {
        "make"
    }


def test_both_readmes_name_the_same_commands():
    one, other = (commands(name) for name in READMES)
    assert one and one ^ other <= {"make report REPORT_LANG=zh", "REPORT_LANG=zh"}


@pytest.mark.parametrize("command", sorted(set().union(*(commands(name) for name in READMES))))
def test_a_command_of_the_readme_is_one(command):
    made = (ROOT / "Makefile").read_text(encoding="utf-8")
    words = command.split()
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", made, re.M)
        words = words[2:]
    for word in words:
        variable, _, value = word.partition("=")
        if variable.isupper() and value:
            assert re.search(rf"\$\({variable}\)", made), variable
    if words[:1] == ["rocmlab"] and len(words) > 1:
        assert words[1] in cli.VERBS
        if len(words) > 2:
            cli.parser().parse_args(words[1:])
    if "rocmlab.cli" in words:
        cli.parser().parse_args(words[words.index("rocmlab.cli") + 1 :])


@pytest.mark.parametrize("name", READMES)
def test_links_of_a_readme_lead_somewhere(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    links = [one for one in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in one]
    assert len(links) >= 15 and [one for one in links if not (ROOT / one).exists()] == []
    assert {f"notebooks/{one.name}" for one in (ROOT / "notebooks").glob("*.ipynb")} <= set(links)
