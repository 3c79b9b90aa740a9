"""What is known about gfx targets: names taken apart, cards identified, and a table that guesses nothing."""

import re
import string

import pytest

from rocmlab import advice, archs, findings

TARGETS = archs.facts()["targets"]


@pytest.mark.parametrize(
    ("raw", "base", "features", "family"),
    [
        ("gfx1031", "gfx1031", {}, "RDNA2"),
        ("gfx90a:xnack+", "gfx90a", {"xnack": True}, "CDNA2"),
        ("gfx950:sramecc+:xnack-", "gfx950", {"sramecc": True, "xnack": False}, "CDNA4"),
        ("amdgcn-amd-amdhsa--gfx1100", "gfx1100", {}, "RDNA3"),
        ("gfx11-generic", "gfx11-generic", {}, "generic"),
        ("amdgcn-amd-amdhsa--gfx10-3-generic", "gfx10-3-generic", {}, "generic"),
        (" gfx1150 ", "gfx1150", {}, "RDNA3.5"),
        ("gfx803", "gfx803", {}, None),
        *(
            (raw, None, {}, None)
            for raw in ("gfx10320", "gfx000", "gfx", "navi23", "sm_90", "gfx1032,gfx1030", "", None)
        ),
    ],
)
def test_names_in_all_forms(raw, base, features, family):
    name = archs.parse(raw)
    assert (name.base, name.features if base else {}, name.family) == (base, features, family)


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        ("AMD Radeon RX 6600", "gfx1032"),
        ("AMD Radeon RX 6600 XT", "gfx1032"),
        ("Radeon RX 6700 XT", "gfx1031"),
        ("AMD Radeon(TM) 780M Graphics", "gfx1103"),
        ("AMD Radeon 8060S Graphics", "gfx1151"),
        ("Navi 23 [Radeon RX 6600/6600 XT/6600M]", "gfx1032"),
        ("Navi 31 [Radeon RX 7900 XT/7900 XTX/7900 GRE/7900M]", "gfx1100"),
        ("AMD Instinct MI300X", "gfx942"),
        ("AMD Instinct MI100 (gfx908)", "gfx908"),
        ("AMD Radeon RX 6600 LE", None),
        ("AMD Radeon(TM) Graphics", None),
        ("NVIDIA GeForce RTX 4090", None),
        ("", None),
        (None, None),
    ],
)
def test_a_card_is_known_by_its_name_or_not_at_all(name, arch):
    assert archs.identify(name) == arch


def test_the_pci_id_is_stronger_than_a_name():
    assert archs.identify("AMD Radeon Graphics", "1002:73EF") == "gfx1032"
    assert archs.identify("AMD Radeon RX 6600", "1002:ffff") == "gfx1032"


def test_override_values_both_ways():
    values = {"gfx1030": "10.3.0", "gfx90a": "9.0.10", "gfx1151": "11.5.1", "gfx1201": "12.0.1"}
    assert {arch: archs.override_value(arch) for arch in values} == values
    assert {archs.from_override(value): value for value in values.values()} == values
    assert [archs.from_override(bad) for bad in ("", "10.3", "gfx1030", "10.3.0.0", "10.16.0", None)] == [None] * 6
    assert (archs.from_kfd(100302), archs.from_kfd(90010), archs.from_kfd(0)) == ("gfx1032", "gfx90a", None)


def test_kin_is_one_instruction_set_family():
    assert archs.kin("gfx1030", "gfx1034") and archs.kin("gfx1100", "gfx1151")
    assert archs.kin("gfx1010", "gfx1030") is False and archs.kin("gfx1032", "gfx803") is None


def test_what_a_build_covers():
    assert archs.covers(["gfx90a", "gfx10-3-generic"], "gfx1034") and archs.covers(["gfx1032:xnack-"], "gfx1032")
    assert not archs.covers(["gfx1030"], "gfx1032")
    assert archs.nearest(["gfx906", "gfx1030", "gfx1100"], "gfx1035") == "gfx1030"
    assert archs.nearest(["gfx906"], "gfx1035") is None


def test_the_makers_list_is_read_by_product_where_it_names_products():
    assert archs.listed("gfx1030", "Linux", "AMD Radeon PRO W6800")[0] is True
    assert archs.listed("gfx1030", "Linux", "AMD Radeon RX 6800 XT")[0] is False
    assert archs.listed("gfx1030", "Windows", "AMD Radeon PRO W6800")[0] is False
    assert archs.listed("gfx1102", "WSL", "AMD Radeon RX 7600")[0] is True
    assert archs.listed("gfx803", "Linux")[0] is None


def test_peaks_follow_from_units_and_clock():
    for arch, known in TARGETS.items():
        for one in known["products"]:
            if one["cu"] and one["boost_mhz"] and one["fp32_plain_tflops"]:
                plain = one["cu"] * 64 * 2 * one["boost_mhz"] / 1e6
                assert one["fp32_plain_tflops"] == pytest.approx(plain, abs=0.01), (arch, one["name"])
    card = archs.product("gfx1032", "AMD Radeon RX 6650 XT")
    assert card["bandwidth_gbs"] == pytest.approx(128 / 8 * 17.52, abs=0.1)  # 128 bit at 17.52 Gbit/s a pin


def test_two_cards_that_differ_in_memory():
    small, large = (archs.product("gfx1200", "AMD Radeon RX 9060 XT", size * 2**30) for size in (8, 16))
    assert (small["memory_gb"], large["memory_gb"]) == (8, 16)
    assert archs.product("gfx1200", "AMD Radeon RX 9060 XT") is None


def test_every_target_has_every_field_and_every_source_is_listed():
    fields = set(TARGETS["gfx1032"])
    sources = set(archs.facts()["sources"])
    ids = [one for known in TARGETS.values() for one in known["pci_ids"]]
    assert len(TARGETS) == 26 and len(ids) == len(set(ids))
    for arch, known in TARGETS.items():
        assert set(known) == fields and set(known["libraries"]) == set(TARGETS["gfx1032"]["libraries"]), arch
        assert all(re.fullmatch(r"1002:[0-9a-f]{4}", one) for one in known["pci_ids"])
        for one in known["products"]:
            assert set(one["src"]) <= sources and one["basis"] in {None, *archs.facts()["bases"]}
            filled = {key for key, value in one.items() if value is not None} - {"name", "src", "basis", "note"}
            assert filled <= {field for named in one["src"].values() for field in named.split()}, (arch, one["name"])
        suggested = known["override"]["suggested"]
        assert suggested is None or archs.kin(archs.from_override(suggested), arch)


def test_nothing_is_promised_for_rdna_2_attention():
    for arch in (one for one, known in TARGETS.items() if known["generation"] in ("RDNA 1", "RDNA 2")):
        assert TARGETS[arch]["libraries"]["flash_attention"] is False
        said = " ".join(
            row["limit"]["en"] for row in advice.limits({"platform": "Linux-6", "system_gpus": [f"AMD {arch}"]})
        )
        assert "cannot exist" in said and arch in said


def test_install_commands():
    assert archs.install("gfx1032", "Windows").endswith('"torch[device-gfx1032]"')
    assert archs.install("gfx900", "Windows") is None
    assert "device-all" in archs.install(None, "Linux")


def test_advice_speaks_both_languages_and_fits_each_target():
    for arch in TARGETS:
        probe = {"platform": "Windows-11", "system_gpus": [f"AMD card ({arch})"]}
        for rows in (advice.support(probe), advice.limits(probe), advice.ways_out(probe), advice.older()):
            for row in rows:
                for part in row.values():
                    assert not isinstance(part, dict) or all(part[lang] for lang in findings.LANGUAGES)
    nvidia = {"platform": "Linux-6", "system_gpus": ["NVIDIA H100"]}
    assert advice.limits(nvidia) == advice.ways_out(nvidia) == advice.support(nvidia) == []
    assert not advice.amd_here(nvidia)


def test_advice_has_equal_placeholders_in_both_languages():
    def placeholders(text):
        return {name for _, name, _, _ in string.Formatter().parse(text) if name}

    texts = advice.texts()
    pairs = [*texts["limits"].values(), *(one[part] for one in texts["ways"].values() for part in ("needs", "known"))]
    assert all(placeholders(one["en"]) == placeholders(one["zh"]) for one in pairs)
    assert all(one.get("list") in {None, *archs.facts()["lists"]} for one in texts["limits"].values())


def test_the_facts_agree_with_the_folder_beside(shared):
    import yaml

    beside = yaml.safe_load((shared / "amd-facts" / "archs.yaml").read_text(encoding="utf-8"))["targets"]
    assert set(beside) == set(TARGETS)
    for arch, known in beside.items():
        assert TARGETS[arch]["generation"] == known["family"]
        mine = {one["name"]: one for one in TARGETS[arch]["products"]}
        for one in known["products"]:
            assert mine[one["name"]]["bandwidth_gbs"] == one["memory_bandwidth_gbs"]
            assert mine[one["name"]]["fp16_tflops"] == one["fp16_tflops"]
