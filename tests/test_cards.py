"""Which card the system shows without any driver library, and the command that gives it a torch."""

from pathlib import Path

import pytest
import yaml

from rocmlab import cards

ARCHS = yaml.safe_load(Path(cards.__file__).with_name("archs.yaml").read_text(encoding="utf-8"))
STABLE = "https://stable.repo.amd.com/rocm/whl-next/"


def fake_sysfs(root: Path, devices: dict[str, tuple[str, str, str]], nodes: list[str] | None = None) -> Path:
    """Lay out a /sys with PCI devices `{address: (vendor, device, class)}` and KFD nodes."""
    for address, (vendor, device, kind) in devices.items():
        folder = root / "bus" / "pci" / "devices" / address.replace(":", "-")
        folder.mkdir(parents=True)
        for name, value in (("vendor", vendor), ("device", device), ("class", kind)):
            (folder / name).write_text(f"{value}\n", encoding="utf-8")
    for number, text in enumerate(nodes or []):
        folder = root / "class" / "kfd" / "kfd" / "topology" / "nodes" / str(number)
        folder.mkdir(parents=True)
        (folder / "properties").write_text(text, encoding="utf-8")
    return root


def node(version: int, device: int) -> str:
    return f"cpu_cores_count 0\nsimd_count 64\ngfx_target_version {version}\nvendor_id 4098\ndevice_id {device}\n"


def test_a_display_class_of_amd_is_a_card_and_its_audio_or_another_vendor_is_not(tmp_path):
    root = fake_sysfs(
        tmp_path,
        {
            "0000:03:00.0": ("0x1002", "0x73EF", "0x030000"),
            "0000:03:00.1": ("0x1002", "0xab28", "0x040300"),  # its sound device
            "0000:00:02.0": ("0x8086", "0x4680", "0x030000"),
            "0000:00:14.0": ("0x1022", "0x149c", "0x0c0330"),
        },
    )
    assert cards.seen(root) == [{"pci": "1002:73ef", "arch": "", "name": ""}]
    assert cards.seen(tmp_path / "nothing here") == []


@pytest.mark.parametrize(
    ("version", "arch"),
    [(100302, "gfx1032"), (110000, "gfx1100"), (90010, "gfx90a"), (90402, "gfx942"), (110501, "gfx1151")],
)
def test_the_driver_states_the_target(tmp_path, version, arch):
    root = fake_sysfs(tmp_path, {"0": ("0x1002", "0xabcd", "0x038000")}, ["cpu_cores_count 8\n", node(version, 0xABCD)])
    assert cards.seen(root) == [{"pci": "1002:abcd", "arch": arch, "name": ""}]
    assert cards.target(cards.seen(root)[0], ARCHS) == arch


def test_a_card_that_only_the_driver_lists_counts_once(tmp_path):
    root = fake_sysfs(tmp_path, {}, [node(90402, 0x74A1), node(90402, 0x74A1)])
    assert cards.seen(root) == [{"pci": "1002:74a1", "arch": "gfx942", "name": ""}]


def test_windows_lines_are_read():
    text = (
        "PCI\\VEN_10DE&DEV_2684&SUBSYS_16F110DE&REV_A1\\4&1 | NVIDIA GeForce RTX 4090\r\n"
        "PCI\\VEN_1002&DEV_73EF&SUBSYS_E4451DA2&REV_C1\\6&2 | AMD Radeon RX 6650 XT\r\n"
        "PCI\\VEN_1002&DEV_164E&SUBSYS_7D671462\\4&3 | AMD Radeon(TM) Graphics\r\n"
        "ROOT\\BASICDISPLAY\\0000 | Microsoft Basic Display Adapter\r\n"
    )
    assert cards.from_windows(text) == [
        {"pci": "1002:73ef", "arch": "", "name": "AMD Radeon RX 6650 XT"},
        {"pci": "1002:164e", "arch": "", "name": "AMD Radeon(TM) Graphics"},
    ]
    assert cards.from_windows("") == []


@pytest.mark.parametrize(
    ("pci", "name", "arch"),
    [
        ("1002:73ff", "", "gfx1032"),
        ("1002:744c", "", "gfx1100"),
        ("1002:ffff", "AMD Radeon RX 9070 XT", "gfx1201"),
        ("1002:ffff", "AMD Radeon(TM) 890M Graphics", "gfx1150"),
        ("1002:ffff", "AMD Radeon RX 6600 XT", "gfx1032"),
        ("1002:ffff", "AMD Radeon(TM) Graphics", ""),
        ("1002:ffff", "AMD Radeon RX 90700", ""),
        ("1002:67df", "Radeon RX 580 Series", ""),
    ],
)
def test_a_card_is_known_by_id_then_by_name(pci, name, arch):
    assert cards.target({"pci": pci, "arch": "", "name": name}, ARCHS) == arch


def advice(*found: dict[str, str], system: str = "linux") -> str:
    return cards.advice(list(found), ARCHS, "make report TORCH_INDEX={url}", "make report TORCH=cpu", system)


def card(pci: str, name: str = "") -> dict[str, str]:
    return {"pci": pci, "arch": "", "name": name}


@pytest.mark.parametrize(
    ("pci", "arch", "family"), [("1002:73ef", "gfx1032", "gfx103X-all"), ("1002:744c", "gfx1100", "gfx110X-all")]
)
@pytest.mark.parametrize("system", ["linux", "windows"])
def test_the_command_is_the_one_of_the_cards_family(pci, arch, family, system):
    said = advice(card(pci), system=system)
    assert arch in said and family in said
    assert f"make report TORCH_INDEX={STABLE}" in said
    assert f'pip install --index-url {STABLE} "torch[device-{arch}]"' in said
    assert "make report TORCH=cpu" in said


def test_an_unknown_card_is_named_with_the_build_for_every_card():
    said = advice(card("1002:9999"))
    assert "1002:9999" in said and "target not known here" in said and 'torch[device-all]"' in said
    assert "TORCH=cpu" in said


def test_the_card_comes_before_the_graphics_inside_the_processor():
    said = advice(card("1002:164e"), card("1002:73ef"))
    assert "torch[device-gfx1032]" in said and "torch[device-gfx1036]" not in said
    assert "1002:164e" in said


def test_no_published_build_is_said_so():
    said = advice(card("1002:66af"), system="windows")
    assert "No torch for it on Windows is known here" in said and "pip install" not in said
    assert "https://download.pytorch.org/whl/rocm7.2" in advice(card("1002:66af"))


def test_without_the_table_the_card_and_the_way_on_are_still_said():
    said = cards.advice([card("1002:73ef")], {}, "use {url}", "make report TORCH=cpu")
    assert "1002:73ef" in said and "make report TORCH=cpu" in said and "use" not in said.splitlines()[-1]


def test_the_table_is_complete_and_every_order_can_be_followed():
    targets = ARCHS["targets"]
    assert len(targets) == 26
    ids = [one for facts in targets.values() for one in facts["pci_ids"]]
    assert len(ids) == len(set(ids)) and all(len(one) == 9 and one.startswith("1002:") for one in ids)
    for arch, facts in targets.items():
        assert facts["kind"] in ("discrete", "integrated", "datacenter")
        assert facts["names"] and facts["family"].startswith("gfx")
        for system in facts["install"]["systems"]:
            url, package = cards.order(arch, ARCHS, system)
            assert url.startswith("https://") and package.startswith("torch")
    assert all(index["source"] and index["date"] for index in ARCHS["indexes"].values())
