"""The set-up never takes a torch away, says what it found, stops with the right command, and repairs itself.

Stand-in wheels play self-built torches: what counts is name, version and where they lie. The set-up itself is the real
one, in a copy of the checkout whose path has spaces and Chinese; `PIP_NO_DEPS` keeps it short where nothing else is
claimed.
"""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from test_cards import fake_sysfs, node

from rocmlab import dotvenv, install, interpreter, wheels

ROOT = Path(install.__file__).resolve().parent.parent
SELF_BUILT, ROCM = "2.9.0a0+git1234", "2.9.1+rocm7.11.0a0"
ENVIRONMENTS = ("VIRTUAL_ENV", "CONDA_PREFIX", "MAKELEVEL", "PIP_CONSTRAINT", "CONDA_DEFAULT_ENV")


def wheel(folder: Path, name: str, version: str, requires: tuple[str, ...] = ()) -> Path:
    """Build a wheel with one package in it."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {one}\n" for one in requires)
    files = {
        f"{name.replace('-', '_')}/__init__.py": f'__version__ = "{version}"\n',
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{file},,\n" for file in [*files, f"{info}/RECORD"])
    path = folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
    return path


def pip(python: Path, *words: object, folder: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "--python", str(python), *map(str, words)]
    env = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **variables}
    return subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", cwd=folder, env=env)


def bare(folder: Path) -> Path:
    """Make an environment without pip and without torch; return its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return interpreter.inside(folder)


def give(python: Path, folder: Path, version: str) -> None:
    """Install a stand-in torch into an environment, as its owner would."""
    path = wheel(folder, "torch", version)
    done = pip(python, "install", "--no-deps", "--no-index", "--force-reinstall", path)
    assert done.returncode == 0, done.stderr


def fingerprint(python: Path) -> dict[str, str]:
    """Return the hash of each file of the torch that this interpreter sees."""
    facts = interpreter.ask(str(python))
    assert facts and facts["torch"]
    folder = Path(facts["torch"]["file"]).parent.parent
    files = [one for one in folder.glob("torch*/**/*") if one.is_file() and "__pycache__" not in one.parts]
    return {str(one.relative_to(folder)): hashlib.sha256(one.read_bytes()).hexdigest() for one in files}


@pytest.fixture
def house(tmp_path, monkeypatch) -> Path:
    """A copy of what the set-up needs of this checkout; nothing is active, and pip installs no dependencies."""
    for name in ENVIRONMENTS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_NO_DEPS", "1")
    root = tmp_path / "my house 房子"
    shutil.copytree(ROOT / "rocmlab", root / "rocmlab", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, root / name)
    bare(root.parent / "plain")
    return root


def run(house: Path, *words: str, python: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the set-up as make does, in the checkout, with a Python that has no torch itself."""
    env = {**os.environ, "PYTHONPATH": "", "PYTHONUTF8": "1", **variables}
    command = [python or str(interpreter.inside(house.parent / "plain")), "-m", "rocmlab.install", *words]
    return subprocess.run(command, cwd=house, env=env, capture_output=True, encoding="utf-8", errors="replace")


def note(house: Path) -> dict:
    return json.loads((house / ".venv" / "rocmlab.json").read_text(encoding="utf-8"))


# ---- a torch that is there stays, and is the one that is used


@pytest.mark.parametrize("place", ["base", "venv", "conda"])
def test_the_torch_of_the_environment_is_seen_and_stays_whatever_its_build(house, tmp_path, place):
    prefix = tmp_path / "owner's env 环境"
    python = bare(prefix)
    give(python, tmp_path / "wheels", SELF_BUILT)
    before = fingerprint(python)
    words = ("--python", str(python)) if place == "base" else ()
    active = {"venv": {"VIRTUAL_ENV": str(prefix)}, "conda": {"CONDA_PREFIX": str(prefix)}}.get(place, {})

    done = run(house, *words, **active)

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"found torch {SELF_BUILT}" in done.stdout and str(prefix) in done.stdout
    theirs, ours = interpreter.ask(str(python)), interpreter.ask(str(interpreter.inside(house / ".venv")))
    assert ours["torch"] == theirs["torch"] and Path(ours["prefix"]) == house / ".venv"
    assert (house / ".venv" / "constraints.txt").read_text(encoding="utf-8") == f"torch=={SELF_BUILT}\n"
    assert fingerprint(python) == before

    began = time.monotonic()
    again = run(house, *words, **active)
    assert again.stdout.startswith("rocmlab set-up: up to date") and len(again.stdout.splitlines()) == 1
    assert time.monotonic() - began < 10

    # Its owner builds another one: that one is used, and protected, from then on.
    give(python, tmp_path / "wheels", ROCM)
    before = fingerprint(python)
    assert run(house, *words, **active).returncode == 0
    assert interpreter.ask(str(interpreter.inside(house / ".venv")))["torch"]["version"] == ROCM
    assert (house / ".venv" / "constraints.txt").read_text(encoding="utf-8") == f"torch=={ROCM}\n"
    assert fingerprint(python) == before

    # The environment is not active this time: the torch is found all the same.
    assert "up to date" in run(house, *words).stdout


def test_no_dependency_asks_for_another_torch(house, tmp_path, monkeypatch):
    """environment.yml is resolved as conda would install it, beside a build that sorts before its own release."""
    monkeypatch.delenv("PIP_NO_DEPS")
    python = bare(tmp_path / "env")
    give(python, tmp_path / "wheels", SELF_BUILT)
    listed = [line.strip() for line in (ROOT / "environment.yml").read_text(encoding="utf-8").splitlines()]
    lines = [line.removeprefix("- ") for line in listed[listed.index("- pip:") + 1 :]]
    assert lines == ["-e .[notebooks]"]
    (house / "conda.requirements.txt").write_text("\n".join(lines), encoding="utf-8")

    report = tmp_path / "report.json"
    words = ("install", "-U", "--dry-run", "--report", report, "-r", house / "conda.requirements.txt")
    done = pip(python, *words, folder=house)

    assert done.returncode == 0, done.stderr
    names = {one["metadata"]["name"].lower() for one in json.loads(report.read_text(encoding="utf-8"))["install"]}
    assert {"rocmlab", "transformers", "papermill"} <= names
    assert not names & {"torch", "torchvision", "torchaudio", "triton", "accelerate"}


@pytest.mark.parametrize("version", [SELF_BUILT, ROCM])
def test_pip_fails_rather_than_replace_a_protected_torch(tmp_path, version):
    python = bare(tmp_path / "env")
    give(python, tmp_path / "wheels", version)
    before = fingerprint(python)
    limits = tmp_path / "constraints.txt"
    limits.write_text(f"torch=={version}\n", encoding="utf-8")
    refused = pip(python, "install", "--no-deps", "-c", limits, "torch==2.13.0")
    assert refused.returncode != 0 and fingerprint(python) == before
    assert wheels.explain(refused.stdout + refused.stderr, f"torch=={version}").endswith(f"torch than torch=={version}")


def test_a_torch_put_into_the_venv_by_its_owner_is_used_and_never_replaced(house, tmp_path):
    """A .venv made by hand, with a torch in it, while another torch is in the active environment."""
    active = bare(tmp_path / "env")
    give(active, tmp_path / "wheels", SELF_BUILT)
    subprocess.run([sys.executable, "-m", "venv", str(house / ".venv")], check=True)
    own = interpreter.inside(house / ".venv")
    give(own, tmp_path / "wheels", ROCM)
    before = fingerprint(own)

    done = run(house, VIRTUAL_ENV=str(tmp_path / "env"))
    assert done.returncode == 0 and f"found torch {ROCM} in .venv (kept)" in done.stdout, done.stdout + done.stderr
    assert (house / ".venv" / "constraints.txt").read_text(encoding="utf-8") == f"torch=={ROCM}\n"
    assert "up to date" in run(house, VIRTUAL_ENV=str(house / ".venv"), python=str(own)).stdout
    refused = run(house, "--torch", "cpu")
    assert refused.returncode == 1 and ROCM in refused.stderr and "Traceback" not in refused.stderr
    assert run(house, "--python", str(active)).returncode == 0
    assert fingerprint(own) == before

    # Even when the folder no longer runs, it is not thrown away.
    own.unlink()
    stopped = run(house)
    assert stopped.returncode == 1 and "Move it away" in stopped.stderr
    assert interpreter.torch_on_disk(house / ".venv") == ROCM


@pytest.mark.parametrize(
    ("wish", "linked", "own", "foreign", "noted", "step"),
    [
        ("", "", "", False, "", "install"),
        ("", "2.9", "", False, "", "link"),
        ("", "2.9", "2.13", False, "cpu", "link"),  # a torch appears in the environment: ours gives way
        ("", "2.9", "2.10", True, "", "keep"),  # the owner put another into .venv
        ("", "", "2.13", False, "cpu", "keep"),
        ("cpu", "2.9", "", False, "", "install"),  # asked for by name, the linked one stays where it is
        ("cpu", "2.9", "2.13", False, "cpu", "keep"),
        ("index:u", "", "2.13", False, "cpu", "install"),
        ("cpu", "", "2.10", True, "cpu", "refuse"),
    ],
)
def test_what_is_done_about_torch(wish, linked, own, foreign, noted, step):
    assert install.plan(wish, linked, own, foreign, noted) == step


def test_a_torch_is_foreign_unless_the_set_up_brought_it(tmp_path):
    folder = tmp_path / ".venv" / "lib" / "python3.11" / "site-packages"
    with zipfile.ZipFile(wheel(tmp_path, "torch", ROCM)) as archive:
        archive.extractall(folder)
    venv = dotvenv.Venv(tmp_path)
    assert venv.foreign() == venv.torch() == ROCM
    venv.write(ours=ROCM)
    assert dotvenv.Venv(tmp_path).foreign() == ""
    venv.write(ours="2.13.0")
    assert venv.foreign() == ROCM
    venv.write(ours=dotvenv.COMING)  # killed while pip was bringing it
    assert venv.foreign() == ""


# ---- no torch


def test_a_card_without_a_torch_stops_with_the_command_of_its_family(house, tmp_path, capsys):
    python = str(bare(tmp_path / "env"))
    cases = {
        "gfx1032": fake_sysfs(tmp_path / "a", {"0": ("0x1002", "0x73ef", "0x030000")}),
        "gfx1100": fake_sysfs(tmp_path / "b", {"0": ("0x1002", "0x1234", "0x030000")}, [node(110000, 0x1234)]),
        "all": fake_sysfs(tmp_path / "c", {"0": ("0x1002", "0x5678", "0x038000")}),
    }
    for arch, sysfs in cases.items():
        assert install.main(["--python", python], root=house, sysfs=sysfs) == 1
        said = capsys.readouterr().err
        assert f'--index-url https://stable.repo.amd.com/rocm/whl-next/ "torch[device-{arch}]"' in said
        assert "--torch cpu" in said and "Traceback" not in said
        assert interpreter.torch_on_disk(house / ".venv") == ""


def test_an_index_is_asked_alone_and_gives_the_torch_for_the_card(house, tmp_path, capsys):
    """The ordinary indexes have a newer torch; it must not win. The extra of the card is asked for."""
    index = tmp_path / "index"
    path = wheel(index / "torch", "torch", ROCM)
    (index / "torch" / "index.html").write_text(f'<a href="{path.name.replace("+", "%2B")}">x</a>', encoding="utf-8")
    sysfs = fake_sysfs(tmp_path / "sys", {"0": ("0x1002", "0x73ef", "0x030000")})
    words = ["--python", str(bare(tmp_path / "env")), "--torch-index", index.as_uri()]
    assert install.main(words, root=house, sysfs=sysfs) == 0, capsys.readouterr()
    assert "torch[device-gfx1032] from file:" in capsys.readouterr().out
    assert interpreter.torch_on_disk(house / ".venv") == ROCM
    assert note(house)["ours"] == ROCM
    assert install.main(words, root=house, sysfs=sysfs) == 0
    assert "up to date" in capsys.readouterr().out
    assert install.main(words[:2], root=house, sysfs=sysfs) == 0
    assert "up to date" in capsys.readouterr().out

    # An index that cannot be asked takes nothing away.
    nowhere = ["--python", words[1], "--torch-index", (tmp_path / "nowhere").as_uri()]
    assert install.main(nowhere, root=house, sysfs=sysfs) == 1
    assert "No matching distribution found for torch" in capsys.readouterr().err
    assert interpreter.torch_on_disk(house / ".venv") == ROCM == note(house)["ours"]

    # On another Python .venv is made anew, with torch from where it came before.
    assert install.main(["--python", str(bare(tmp_path / "other"))], root=house, sysfs=sysfs) == 0
    assert "made anew" in capsys.readouterr().out
    assert interpreter.torch_on_disk(house / ".venv") == ROCM


def test_a_cuda_build_is_looked_up_first_and_not_taken(house, tmp_path, monkeypatch, capsys):
    """An index as most people have it: torch brings NVIDIA's packages."""
    folder = tmp_path / "wheels"
    wheel(folder, "torch", "2.13.0", ("nvidia-cublas", "sympy"))
    wheel(folder, "nvidia-cublas", "13.1")
    wheel(folder, "sympy", "1.14")
    monkeypatch.delenv("PIP_NO_DEPS")
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_CONFIG_FILE": os.devnull}.items():
        monkeypatch.setenv(name, value)
    nothing = tmp_path / "sys"
    python = str(bare(tmp_path / "env"))
    assert install.main(["--python", python], root=house, sysfs=nothing) == 1
    said = capsys.readouterr().err
    assert "CUDA build" in said and "1 packages for NVIDIA" in said
    assert "--torch-index https://download.pytorch.org/whl/cpu" in said and "--torch any" in said
    assert interpreter.torch_on_disk(house / ".venv") == ""
    install.main(["--python", python, "--torch", "any"], root=house, sysfs=nothing)
    assert interpreter.torch_on_disk(house / ".venv") == "2.13.0"


def test_parts_of_a_cuda_build_are_told_from_those_of_a_cpu_build():
    def report(*pairs: tuple[str, str]) -> dict:
        return {"install": [{"metadata": {"name": name, "version": version}} for name, version in pairs]}

    assert wheels.cuda_parts(report(("torch", "2.13.0+cpu"), ("sympy", "1.14"), ("networkx", "3"))) == []
    assert wheels.cuda_parts(report(("torch", "2.13.0"), ("nvidia-nccl-cu13", "2"), ("cuda-bindings", "13"))) == [
        "nvidia-nccl-cu13",
        "cuda-bindings",
    ]
    assert wheels.cuda_parts(report(("torch", "2.13.0+cu130"))) == ["torch"]


def test_only_the_named_index_is_asked_and_the_way_to_it_is_kept(monkeypatch):
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://mirror.example/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels")
    monkeypatch.delenv("PIP_CERT", raising=False)
    env = wheels.only_this_index(
        "https://rocm.example/", "global.extra-index-url='https://m/'\nglobal.proxy='http://p:1'\ninstall.cert='/c.pem'"
    )
    assert env["PIP_INDEX_URL"] == "https://rocm.example/" and env["PIP_CONFIG_FILE"] == os.devnull
    assert "PIP_EXTRA_INDEX_URL" not in env and "PIP_FIND_LINKS" not in env
    assert env["PIP_PROXY"] == "http://p:1" and env["PIP_CERT"] == "/c.pem"


# ---- what goes wrong is said in a sentence, and repaired


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "the disk is full"),
        (
            "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(...)'\n"
            "ERROR: No matching distribution found for torch==2.13.0",
            "could not be reached",
        ),
        ("ERROR: Could not install packages due to an OSError: [Errno 13] Permission denied: '/x'", "not be written"),
        ("The conflict is caused by: ...\nERROR: ResolutionImpossible: for help visit", "another torch than torch==2"),
        (
            "noise\nERROR: No matching distribution found for torch==2.13.0\n",
            "No matching distribution found for torch",
        ),
        ("  ERROR: No matching distribution found for setuptools>=77\n  [end of output]", "found for setuptools>=77"),
        ("Killed", "gave no reason"),
    ],
)
def test_the_reason_of_a_failure_is_one_clause(text, words):
    said = wheels.explain(text, "torch==2")
    assert words in said and "\n" not in said


def test_no_network_is_one_sentence_with_the_log(house, tmp_path, monkeypatch, capsys):
    python = bare(tmp_path / "env")
    give(python, tmp_path / "wheels", ROCM)
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    assert install.main(["--python", str(python)], root=house) == 1
    said = capsys.readouterr()
    assert "could not be reached" in said.err and str(house / ".venv" / "setup.log") in said.err
    assert "Traceback" not in said.out + said.err and len(said.err.strip().splitlines()) == 1
    assert note(house)["state"] == "failed"


@pytest.mark.skipif(os.name == "nt", reason="process groups are ended in another way on Windows")
def test_a_set_up_that_was_killed_is_repaired_and_a_moved_one_too(house, tmp_path):
    python = bare(tmp_path / "env")
    give(python, tmp_path / "wheels", ROCM)
    command = [sys.executable, "-m", "rocmlab.install", "--python", str(python)]
    env = {**os.environ, "PYTHONPATH": ""}
    process = subprocess.Popen(command, cwd=house, env=env, start_new_session=True, stdout=subprocess.DEVNULL)
    log, deadline = house / ".venv" / "setup.log", time.monotonic() + 120
    while time.monotonic() < deadline and not (log.exists() and b" -e ." in log.read_bytes()):
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert note(house)["state"] == "working"
    (interpreter.packages(house / ".venv")[0] / "half").mkdir()

    done = run(house, "--python", str(python))
    assert done.returncode == 0 and "made anew" in done.stdout
    assert not (interpreter.packages(house / ".venv")[0] / "half").exists()
    assert note(house)["state"] == "ready"

    moved = house.rename(tmp_path / "elsewhere")
    done = run(moved, "--python", str(python))
    assert done.returncode == 0 and "made anew" in done.stdout
    assert "up to date" in run(moved, "--python", str(python)).stdout


def test_a_folder_that_cannot_be_written_and_a_python_that_does_not_run_are_sentences(house, tmp_path, capsys):
    (house / ".venv").write_text("a file, not a folder", encoding="utf-8")
    python = bare(tmp_path / "env")
    give(python, tmp_path / "wheels", ROCM)
    assert install.main(["--python", str(python)], root=house) == 1
    assert "Traceback" not in capsys.readouterr().err
    assert install.main(["--python", str(tmp_path / "no such python")], root=house) == 1
    assert "is no Python that runs" in capsys.readouterr().err


def test_an_old_python_is_refused_with_a_newer_one_named(house, monkeypatch, capsys):
    old = {"python": "/usr/bin/python3", "base": "", "prefix": "/usr", "version": [3, 10, 12], "torch": None}
    monkeypatch.setattr(interpreter, "ask", lambda python: old)
    monkeypatch.setattr(shutil, "which", lambda name: name if name == "python3.12" else None)
    assert install.main([], root=house) == 1
    said = capsys.readouterr().err
    assert "Python 3.10; 3.11, 3.12 or 3.13 is needed" in said and "--python python3.12" in said


def test_unknown_words_are_usage_errors(capsys):
    for words in (["everything"], ["--torch", "gpu"]):
        with pytest.raises(SystemExit) as ended:
            install.main(words)
        assert ended.value.code == 2
    capsys.readouterr()


@pytest.mark.skipif(Path(sys.prefix) != ROOT / ".venv", reason="not running in the .venv that make test sets up")
def test_the_environment_of_this_very_test_came_from_a_whole_set_up():
    assert note(ROOT)["state"] in ("ready", "working") and "test" in note(ROOT)["extras"]
    facts = interpreter.ask(sys.executable)
    assert facts["torch"] and (note(ROOT)["torch"] in (None, facts["torch"]))
    began = time.monotonic()
    done = run(ROOT, "notebooks", "test", python=sys.executable)
    assert done.returncode == 0 and "up to date" in done.stdout, done.stdout + done.stderr
    assert time.monotonic() - began < 10
