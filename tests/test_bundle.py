"""A bundle holds what a reader needs and nothing private, comes out the same twice, and opens; no other zip does."""

import base64
import gzip
import json
import shutil
import stat
import struct
import time
import zipfile
import zlib
from pathlib import Path

import pytest

from rocmlab import bundle, cli, readers, redaction, results, sides

RUN = Path(__file__).parent / "data" / "run"

# name: (where it was planted, what must not be found anywhere in the bundle)
SECRETS = {
    "home": ("/home/zelda/models/x.safetensors", "zelda"),
    "home_windows": (r"C:\Users\Max Mustermann\AppData\x.dll", "Mustermann"),
    "home_wsl": ("/mnt/c/Users/waltraud/x", "waltraud"),
    "home_mac": ("/Users/gwendolyn/x", "gwendolyn"),
    "home_chinese": (r"D:\Users\张伟\模型", "张伟"),
    "user_variable": ("USERNAME=quentin", "quentin"),
    "name_again": ("read by zelda yesterday", "zelda"),
    "host": ("HOSTNAME=winterbox-17", "winterbox"),
    "host_default": ("on DESKTOP-A1B2C3D", "A1B2C3D"),
    "hub": ("hf_AbCdEfGhIjKlMnOpQrStUvWx", "AbCdEfGh"),
    "github": ("ghp_0123456789abcdefghijABCDEFGHIJ012345", "0123456789abcdefghij"),
    "github_fine": ("github_pat_11ABCDEFG0123456789_abcdefghijk", "11ABCDEFG"),
    "aws_id": ("AKIAIOSFODNN7EXAMPLE", "IOSFODNN7"),
    "aws_secret": ("aws_secret_access_key = wJalrXUtnFEMIK7MDENGbPxRfiCY", "wJalrXUtn"),
    "bearer": ("Authorization: Bearer abcdef0123456789abcdef==", "abcdef0123456789"),
    "web_token": ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NSJ9.s3cr3tSignature", "s3cr3t"),
    "password": ("password: hunter22hunter", "hunter22"),
    "url": ("https://bob:swordfish@example.org/simple", "swordfish"),
    "serial": ("Serial Number: MXQ81302KJ", "MXQ81302KJ"),
    "unique": ("Unique ID: 0x9246feb5c0ffee01", "9246feb5"),
    "gpu_uuid": ("GPU-5f3c1a2b-1111-2222-3333-444455556666", "5f3c1a2b"),
    "mac": ("link/ether 3c:7c:3f:1e:aa:0b brd", "3c:7c:3f"),
    "mac_windows": ("Physical Address: 3C-7C-3F-1E-AA-0C", "3C-7C-3F"),
    "mail": ("Author: a.turing@example.com", "turing"),
    "mail_in_an_address": ("mailto:lovelace%40example.com, ivan.petrov@mail.ru", "petrov"),
    "mail_encoded": ("mailto:lovelace%40example.com", "lovelace"),
    "home_of_three_words": (r"C:\Users\Jan Willem Vanderbilt\AppData", "Vanderbilt"),
    "home_of_three_words_in_an_address": ("file:///C:/Users/Jan%20Willem%20Vanderbilt/x", "Vanderbilt"),
    "home_with_a_quote": (r"C:\Users\O'Shaughnessy\AppData", "Shaughnessy"),
    "home_in_an_address": ("x=%2Fhome%2Fbarnaby%2Fx, y=%2Ftmp%2Fbarnaby%2F", "barnaby"),
    "home_windows_in_an_address": ("C%3A%5CUsers%5Cosvaldo%5Cx", "osvaldo"),
    "home_in_json_in_json": (json.dumps(json.dumps({"p": r"C:\Users\hortense\x"})), "hortense"),
    "home_wsl_from_windows": (r"\\wsl.localhost\Ubuntu\home\philomena\x", "philomena"),
    "home_git_bash": ("/c/Users/ottokar/x", "ottokar"),
    "disk": ("/media/kunigunde/disk/x", "kunigunde"),
    "disk_fedora": ("/run/media/theobald/disk/x", "theobald"),
    "short_home": ("/home/xu/a.py", "home/xu"),
    "short_variable": ("USER=li", "USER=li"),
    "chinese_twice": (r"D:\Users\张伟\x 由张伟编译", "张伟"),
    "chinese_variable": ("USERNAME=李雷", "李雷"),
    "name_within_a_name": ("zelda-desktop, zelda_models, zeldas", "zelda"),
    "name_after_an_escape": (r"'\nzelda'", "zelda"),
    "uname": ("Linux kestrelbox 6.8.0-45-generic #45-Ubuntu SMP x86_64 GNU/Linux", "kestrelbox"),
    "system_log": ("Nov 12 10:11:12 falconbox kernel: amdgpu 0000:03:00.0: ring timeout", "falconbox"),
    "prompt_user": ("balthasar@heronbox:~/src$ rocminfo", "balthasar"),
    "prompt_host": ("balthasar@heronbox:~/src$ rocminfo", "heronbox"),
    "host_of_a_domain": ("HOSTNAME=osprey.example.internal, osprey again", "osprey"),
    "share": (r"open \\FILESERVER7\models\x", "FILESERVER7"),
    "account": ("gunther:x:1000:1000:Gunther Lastname,,,:/home/gunther:/bin/bash", "Lastname"),
    "account_windows": ("S-1-5-21-3623811015-3361044348-30300820-1013", "3623811015"),
    "ipv4": ("ssh 192.168.178.42 done", "178.42"),
    "ipv4_port": ("tcp://10.1.22.33:29500", "1.22.33"),
    "ipv4_public": ("inet 84.117.3.9/24 brd", "117.3.9"),
    "ipv6": ("inet6 fe80::3e7c:3fff:fe1e:aa0b/64", "3e7c:3fff"),
    "ipv6_public": ("2001:db8:85a3::8a2e:370:7334", "85a3"),
    "notebook_server": (
        "http://localhost:8888/lab?token=0123456789abcdef0123456789abcdef",
        "0123456789abcdef0123456789ab",
    ),
    "serial_powershell": ("SerialNumber           : S4EWNX0N123456", "S4EWNX0N"),
    "serial_smi": ("        ASIC_SERIAL: 0x9246FEB5C0FFEE02", "9246FEB5"),
    "serial_disk": ("Volume Serial Number is 1C3B-4F5D", "1C3B-4F5D"),
    "key": ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\n-----END OPENSSH PRIVATE KEY-----", "b3BlbnNz"),
}
PLANTED = "\n".join(text for text, _ in SECRETS.values())


def png(text: str = "") -> bytes:
    """A picture of one pixel, with a text written into it."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    note = chunk(b"tEXt", b"Author\0" + text.encode()) if text else b""
    return redaction.PNG_HEAD + head + note + chunk(b"IDAT", zlib.compress(b"\0\0")) + chunk(b"IEND", b"")


def planted(folder: Path) -> Path:
    """A run folder with every secret in every kind of file."""
    run = folder / "gfx1031"
    shutil.copytree(RUN, run)
    for name in ("figures", "logs", "traces", "pages"):
        (run / name).mkdir()
    birth = json.loads((run / "run.json").read_text(encoding="utf-8"))
    birth["variables"] = {"HF_TOKEN": "plain-looking", "MIOPEN_LOG": PLANTED, PLANTED: 1, "api_key": "k3y-of-mine"}
    birth["snapshot"]["tools"] = {"rocm-smi": {"parsed": {"serial_number": "MXQ81302KJ", "uuid": "0x9246feb5c0ffee01"}}}
    (run / "run.json").write_text(json.dumps(birth), encoding="utf-8")  # letters as \u escapes
    with (run / "records" / "processes.jsonl").open("w", encoding="utf-8") as file:
        file.write(
            json.dumps({"stderr": PLANTED}) + "\n" + json.dumps({"a": PLANTED})[:-1] + "\n"
        )  # the last one is cut
    (run / "summary.md").write_text(PLANTED, encoding="utf-8")
    (run / "index.html").write_text(
        f"<p>{PLANTED}</p><img src='data:image/png;base64,{base64.b64encode(png(PLANTED)).decode()}'>", encoding="utf-8"
    )
    (run / "pages" / "03.html").write_text(PLANTED, encoding="utf-8")
    (run / "logs" / "03.log").write_bytes(PLANTED.encode("utf-16"))
    (run / "logs" / "04.log").write_bytes(PLANTED.encode("gbk"))
    (run / "figures" / "03-speed.png").write_bytes(png(PLANTED))
    (run / "figures" / "03-speed.svg").write_text(f"<svg><!-- {PLANTED} --></svg>", encoding="utf-8")
    path = run / "notebooks" / "03_generation.ipynb"
    book = json.loads(path.read_text(encoding="utf-8"))
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": PLANTED.splitlines(keepends=True)},
        {"output_type": "display_data", "metadata": {"who": PLANTED}, "data": {
            "image/png": base64.encodebytes(png(PLANTED)).decode(), "text/html": PLANTED}},
    ]  # fmt: skip
    book["cells"] += [{"cell_type": "code", "id": "x", "metadata": {}, "source": PLANTED, "outputs": outputs,
                       "execution_count": 1}]  # fmt: skip
    path.write_text(json.dumps(book), encoding="utf-8")
    trace = {
        "schemaVersion": 1,
        "host_name": "winterbox-17",
        "environ": {"SECRET_OF_THE_RECORDER": "from-the-environment"},
        "traceName": r"C:\Users\Max Mustermann\trace.json",
        "traceEvents": [
            {"ph": "M", "name": "process_environment", "args": {"env": {"EDITOR": "from-the-environment"}}},
            {"ph": "X", "name": "aten::mm", "ts": 1, "dur": 2, "args": {"Call stack": PLANTED}},
        ],
    }
    (run / "traces" / "step.json.gz").write_bytes(gzip.compress(json.dumps(trace).encode()))
    (run / "traces" / "other.json").write_text(json.dumps(trace), encoding="utf-8")
    return run


def content(path: Path) -> dict[str, bytes]:
    """Every file of a zip, traces unpacked, pictures out of base64."""
    with zipfile.ZipFile(path) as archive:
        found = {name: archive.read(name) for name in archive.namelist()}
    for name in [one for one in found if one.endswith(".gz")]:
        found[name] = gzip.decompress(found[name])
    for name, data in list(found.items()):
        for n, part in enumerate(data.replace(b"\\n", b"").split(b"iVBORw0KGgo")[1:]):
            end = next((i for i, c in enumerate(part) if not (chr(c).isalnum() or chr(c) in "+/=")), len(part))
            raw = b"iVBORw0KGgo" + part[:end]
            found[f"{name}#{n}"] = base64.b64decode(raw[: len(raw) // 4 * 4])
    return found


@pytest.fixture(scope="module")
def bundled(tmp_path_factory):
    run = planted(tmp_path_factory.mktemp("a run 跑"))
    path, manifest = bundle.make(run)
    return run, path, manifest


@pytest.mark.parametrize("name", SECRETS)
def test_no_planted_secret_is_in_any_file(bundled, name):
    _, path, _ = bundled
    secret = SECRETS[name][1]
    forms = {secret, secret.encode("unicode_escape").decode(), json.dumps(secret)[1:-1]}
    for file, data in content(path).items():
        for form in forms:
            for encoding in ("utf-8", "utf-16-le", "gbk"):
                assert form.encode(encoding) not in data, f"{name} in {file}"


def test_the_values_of_private_keys_and_the_environment_of_a_trace_are_gone(bundled):
    every = b"\n".join(content(bundled[1]).values())
    for word in (b"plain-looking", b"k3y-of-mine", b"from-the-environment", b"MXQ81302KJ", b"9246feb5"):
        assert word not in every


def test_what_is_not_private_stays(bundled):
    found = content(bundled[1])
    assert {"run.json", "summary.md", "index.html", "logs/03.log", "figures/03-speed.png", "pages/03.html",
            "figures/03-speed.svg", "records/generation.jsonl", "notebooks/03_generation.ipynb", "traces/step.json.gz",
            "traces/other.json.gz", "bundle.json"} <= set(found)  # fmt: skip
    assert b"aten::mm" in found["traces/step.json.gz"] and b"RX 6700 XT" in found["run.json"]
    assert json.loads(found["notebooks/03_generation.ipynb"])["nbformat"] == 4
    assert "读".encode() not in found["logs/03.log"] and found["logs/03.log"].decode("utf-8")
    pictures = [data for name, data in found.items() if "#" in name or name.endswith(".png")]
    assert len(pictures) >= 3 and all(one.startswith(redaction.PNG_HEAD) and b"IEND" in one for one in pictures)


def test_a_bundle_is_small_sorted_without_times_and_the_same_twice(bundled, tmp_path):
    run, path, _ = bundled
    assert path.name == "gfx1031.zip" and path.stat().st_size < bundle.LIMIT_BYTES
    again, _ = bundle.make(run, tmp_path / "again.zip")
    assert again.read_bytes() == path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        names = [one.filename for one in archive.infolist()]
        assert names == sorted(names) and {one.date_time for one in archive.infolist()} == {bundle.FIXED_TIME}


def test_a_bundle_opens_again(bundled, capsys):
    run, path, _ = bundled
    found = readers.answer(path)
    assert (found["kind"], found["schema"]) == ("bundle", "rocmlab-birth-1") and found["numbers"]["records"] > 0
    assert "gfx1031.zip" in found["sentence"]
    one, other = sides.load(path), sides.load(run)
    assert one.items == other.items and one.machine == other.machine
    assert cli.main(["compare", str(run), str(path)]) == 0
    assert "Nothing that was recorded differs" in capsys.readouterr().out or one.items == []
    assert cli.main(["read", str(path)]) == 0


def test_what_does_not_fit_is_left_out_and_named(tmp_path, monkeypatch):
    run = planted(tmp_path)
    noise = bytes(range(256)) * 40
    (run / "figures" / "03-big.png").write_bytes(_noisy(noise))
    (run / "figures" / "04-cut.png").write_bytes(png()[:-10])
    (run / "traces" / "cut.json.gz").write_bytes(b"\x1f\x8b not gzip")
    monkeypatch.setattr(bundle, "LIMIT_BYTES", 240_000)
    path, manifest = bundle.make(run)
    assert path.stat().st_size < 240_000 and "records/generation.jsonl" in manifest["files"]
    assert manifest["left_out"]["figures/03-big.png"].startswith("no room")
    assert "cannot be read" in manifest["left_out"]["figures/04-cut.png"]
    assert "cannot be read" in manifest["left_out"]["traces/cut.json.gz"]


def _noisy(seed: bytes) -> bytes:
    """A picture whose data cannot be packed."""
    import hashlib

    data = b"".join(hashlib.sha256(seed + str(n).encode()).digest() for n in range(4000))
    chunk = struct.pack(">I", len(data)) + b"IDAT" + data + struct.pack(">I", zlib.crc32(b"IDAT" + data))
    whole = png()
    return whole[:33] + chunk + whole[33:]


def test_a_link_in_a_run_folder_is_not_followed(tmp_path):
    run = planted(tmp_path)
    secret = tmp_path / "secret.log"
    secret.write_text("outside", encoding="utf-8")
    try:
        (run / "logs" / "05.log").symlink_to(secret)
    except OSError:
        pytest.skip("this system lets nobody make links")
    _, manifest = bundle.make(run)
    assert "logs/05.log" not in manifest["files"]


def test_only_a_run_folder_is_bundled(tmp_path, capsys):
    assert cli.main(["bundle", str(tmp_path)]) == 2 and "not a run folder" in capsys.readouterr().err
    run = planted(tmp_path)
    assert cli.main(["bundle", str(run), "--out", str(tmp_path / "out.zip")]) == 0
    assert "out.zip" in capsys.readouterr().out
    assert cli.main(["bundle", str(run), "--out", str(tmp_path / "no" / "such.zip")]) == 2


# ---- zips that are not opened


def zip_of(path: Path, files: dict, **changes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, bundle.FIXED_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = changes.get(name, stat.S_IFREG | 0o644) << 16
            archive.writestr(entry, data)
    return path


def good(bundled) -> dict[str, bytes]:
    with zipfile.ZipFile(bundled[1]) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def refused(path: Path, capsys) -> str:
    """The reason; `read` and `compare` both end with 2, without a traceback."""
    with pytest.raises(bundle.BundleError) as error, bundle.opened(path):
        pass
    for verb in (["read", str(path)], ["compare", str(path), str(path)]):
        assert cli.main(verb) == 2
        said = "".join(capsys.readouterr())
        assert str(error.value) in said and "Traceback" not in said
    found = readers.answer(path)
    assert (found["kind"], found["verdict"]) == ("unknown", "BUNDLE_REFUSED")
    assert error.value.why["zh"] in readers.answer(path, "zh")["sentence"]
    return str(error.value)


@pytest.mark.parametrize(
    "name", ["../evil.jsonl", "records/../../evil.jsonl", "/etc/passwd", "C:/evil.json", "records\\..\\evil.jsonl",
             "records/a/b.jsonl", "evil.exe", "records/.hidden", "notebooks/x.py", "run.json/x", "records/a:b.jsonl",
             "logs/con.log", "records/AUX.x.jsonl", "logs/COM¹.log", "logs/x\x1b[2J.log", "logs/速度.log",
             "\\\\srv\\x.log"],
)  # fmt: skip
def test_names_that_no_bundle_has(bundled, tmp_path, capsys, name):
    path = zip_of(tmp_path / "x.zip", {**good(bundled), name: b"x"})
    assert "a name that no bundle has" in refused(path, capsys)
    assert not (tmp_path / "evil.jsonl").exists() and not (tmp_path.parent / "evil.jsonl").exists()


def test_links_and_devices_in_a_zip(bundled, tmp_path, capsys):
    for kind in (stat.S_IFLNK, stat.S_IFCHR, stat.S_IFDIR):
        path = zip_of(tmp_path / f"{kind}.zip", good(bundled), **{"summary.md": kind | 0o777})
        assert "not a plain file" in refused(path, capsys)


@pytest.mark.parametrize("name", ["Summary.md", "RUN.json", "records/Generation.jsonl"])
def test_names_that_are_one_on_windows(bundled, tmp_path, capsys, name):
    path = zip_of(tmp_path / "x.zip", {**good(bundled), name: b"x"})
    refused(path, capsys)


def test_two_files_of_one_name(bundled, tmp_path, capsys):
    path = zip_of(tmp_path / "x.zip", {**good(bundled), "logs/A.log": b"x", "logs/a.log": b"x"})
    assert "two files of one name" in refused(path, capsys)
    with zipfile.ZipFile(tmp_path / "y.zip", "w") as archive, pytest.warns(UserWarning, match="Duplicate"):
        for name, data in [*good(bundled).items(), ("run.json", b"{}")]:
            archive.writestr(name, data)
    assert "two files of one name" in refused(tmp_path / "y.zip", capsys)


@pytest.mark.parametrize("way", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_a_zip_packed_in_a_way_whose_size_is_not_bounded(bundled, tmp_path, capsys, way):
    with zipfile.ZipFile(tmp_path / "x.zip", "w", way) as archive:
        for name, data in good(bundled).items():
            archive.writestr(name, data)
    assert "packed in a way of its own" in refused(tmp_path / "x.zip", capsys)


def test_a_zip_that_is_too_heavy_is_not_even_listed(bundled, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(bundle, "PACKED_BYTES", 1000)
    monkeypatch.setattr(zipfile, "ZipFile", None)
    assert "no bundle has" in refused(bundled[1], capsys)


def test_a_zip_with_a_manifest_without_end(bundled, tmp_path, capsys):
    for name in (bundle.MANIFEST, "run.json"):
        refused(zip_of(tmp_path / "x.zip", {**good(bundled), name: b"[" * 200_000}), capsys)


@pytest.mark.parametrize("text", [b"", b"PK", b"PK\x03\x04", b"not a zip", bytes(1000)])
def test_a_file_that_is_only_called_a_zip(tmp_path, capsys, text):
    (tmp_path / "x.zip").write_bytes(text)
    refused(tmp_path / "x.zip", capsys)


def test_a_bomb_is_not_unpacked(bundled, tmp_path, capsys, monkeypatch):
    files = {**good(bundled), "logs/bomb.log": bytes(3_000_000)}
    monkeypatch.setattr(bundle, "UNPACKED_BYTES", 2_000_000)
    path = zip_of(tmp_path / "bomb.zip", files)
    assert path.stat().st_size < 200_000 and "would unpack to more than 2 MB" in refused(path, capsys)
    data = bytearray(path.read_bytes())
    size = struct.pack("<I", 3_000_000)
    path.write_bytes(bytes(data).replace(size, struct.pack("<I", 10)))  # the zip lies about the size
    refused(path, capsys)


def test_too_many_files(bundled, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(bundle, "MOST_FILES", 5)
    assert "more than 5 files" in refused(bundled[1], capsys)


def test_a_foreign_zip(bundled, tmp_path, capsys):
    assert "no bundle.json" in refused(zip_of(tmp_path / "a.zip", {"word/document.xml": b"<x/>"}), capsys)
    assert "no run.json" in refused(zip_of(tmp_path / "b.zip", {"bundle.json": b"{}"}), capsys)
    other = zip_of(tmp_path / "c.zip", {**good(bundled), "bundle.json": b'{"schema": "other"}'})
    assert "rocmlab-bundle-1" in refused(other, capsys)
    empty = zip_of(tmp_path / "d.zip", {})
    assert "no bundle.json" in refused(empty, capsys)


@pytest.mark.parametrize("cut", [10, 1000, -1, -30])
def test_a_damaged_zip(bundled, tmp_path, capsys, cut):
    path = tmp_path / "cut.zip"
    path.write_bytes(bundled[1].read_bytes()[:cut])
    refused(path, capsys)


def test_flipped_bytes_never_raise_anything_else(bundled, tmp_path):
    data = bundled[1].read_bytes()
    for place in range(0, len(data), max(1, len(data) // 150)):
        path = tmp_path / "flipped.zip"
        path.write_bytes(data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :])
        assert readers.answer(path)["kind"] in ("unknown", "bundle")


def test_a_changed_file_is_noticed(bundled, tmp_path, capsys):
    changed = {**good(bundled), "summary.md": b"better numbers"}
    assert "summary.md is not as it was packed" in refused(zip_of(tmp_path / "a.zip", changed), capsys)
    fewer = {name: data for name, data in good(bundled).items() if name != "summary.md"}
    assert "'summary.md' is missing" in refused(zip_of(tmp_path / "b.zip", fewer), capsys)
    more = {**good(bundled), "logs/99.log": b"x"}
    assert "logs/99.log is not as" in refused(zip_of(tmp_path / "c.zip", more), capsys)


def test_a_locked_zip(bundled, tmp_path, capsys):
    path = zip_of(tmp_path / "locked.zip", good(bundled))
    data = bytearray(path.read_bytes())
    for head, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = data.find(head)
        while place >= 0:
            data[place + at] |= 1
            place = data.find(head, place + 1)
    path.write_bytes(bytes(data))
    assert "encrypted" in refused(path, capsys)


# ---- what redact() leaves alone


@pytest.mark.parametrize(
    "text",
    [
        "0000:03:00.0", "2026-12-01T10:22:40+00:00", "tokens: 256, token_ids [1, 2], pad_token: <|endoftext|>",
        "q@k.transpose(-2, -1)", "Uuid: CPU-XX", "Serial: none", "a secret of speed", "AMD_SERIALIZE_KERNEL=3",
        "GPU-bound", "torch 2.9.1+rocm7.11.0a20260115", "sha256 9f04e2822aa3", "1.2.3.4", "bearer of news",
        "stop_rule: end token off", "aten::mm", "decode_tok_s=30.3", "https://github.com/ROCm/ROCm",
        "nvidia-curand-cu12 10.3.9.90", "driver 31.0.24027.1012", "Windows-10.0.26100", "x[2000::2]", "c10::cuda::add",
        "http://127.0.0.1:8888", "attn@self.weight.to(x)", "a@b.mT", "2026:12:01 10:00:00", "/homework/x",
        "max-autotune",
    ],
)  # fmt: skip
def test_redaction_leaves_what_is_not_private(text):
    assert results.redact(text) == text


@pytest.mark.parametrize("name", ["the", "a", "max", "model", "steady", "torch", "gfx1032", "samples_ms"])
def test_a_name_that_is_an_ordinary_word_does_not_ruin_the_text(name, monkeypatch):
    text = "the steady step of a model on gfx1032 with max-autotune in torch, samples_ms"
    redactor = redaction.Redactor([])
    redactor.learn(f"/home/{name}/x C:\\Users\\{name}\\y USER={name}")
    assert redactor.text(text) == text
    assert redactor.text(f"/home/{name}/x USER={name}") == "/home/<user>/x USER=<name>"
    monkeypatch.setattr(results.getpass, "getuser", lambda: name)
    monkeypatch.setattr(results.socket, "gethostname", lambda: name)
    assert results.redact(text) == text and results.redact(f"/home/{name}/x") == "/home/<user>/x"


@pytest.mark.parametrize("piece", ["A", "a-", "a.", "/", "%2F", "a@", "/home/", "fe80:", "1.1.", "http://", "serial "])
def test_a_line_without_end_takes_no_hours(piece):
    text, began = piece * (120_000 // len(piece)), time.monotonic()
    redactor = redaction.Redactor(results._patterns())
    redactor.learn(text)
    redactor.text(text)
    assert time.monotonic() - began < 30  # what grows with the square of the length takes many minutes


def test_names_of_the_own_account_are_found_in_any_case(monkeypatch):
    monkeypatch.setattr(results.getpass, "getuser", lambda: "Vanderbilt")
    monkeypatch.setattr(results.socket, "gethostname", lambda: "WINTERBOX.example.org")
    assert results.redact(["VANDERBILT on winterbox", {"hostname": "x1"}]) == [
        "<user> on <host>",
        {"hostname": "<name>"},
    ]


def test_a_file_with_somebodys_name_is_left_out_and_not_named(tmp_path):
    run = planted(tmp_path)
    (run / "logs" / "zelda-05.log").write_text("x", encoding="utf-8")
    path, manifest = bundle.make(run)
    assert manifest["left_out"] == {"logs/<name>-05.log": "its name is somebody's"}
    assert b"zelda" not in path.read_bytes()


def test_a_sentence_after_a_colon_is_no_name():
    redactor = redaction.Redactor([])
    redactor.learn("Hidden behind the host: the device. Named by its user: this machine")
    redactor.learn('{"host": "kestrel-7", "x": 1} USERNAME=wilhelmine')
    assert redactor.names == {"kestrel-7", "wilhelmine"}
    assert redactor.text("the step of the kestrel-7 by wilhelmine") == "the step of the <name> by <name>"
