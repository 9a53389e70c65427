"""Elastic Fabric Adapters of a machine, as the cookbook sees them on the PCI bus. No machine here has one."""

from __future__ import annotations

from pathlib import Path

from cookbooks.kitchen import Ask

from infra.catalogue import efa


def test_adapters_are_counted_and_nothing_else_of_amazons(ask: Ask, tmp_path: Path) -> None:
    """As /sys has them: ENA (0xec20) and NVMe (0x8061) are Amazon's too, 0x10de is NVIDIA."""
    for number, (vendor, device) in enumerate(
        (
            ("0x1d0f", "0xec20"),
            ("0x1d0f", "0x8061"),
            ("0x10de", "0xefa1"),
            ("0x1d0f", "0xefa0"),
            ("0x1d0f", "0xefa2"),
        )
    ):
        folder = tmp_path / f"0000:00:{number:02}.0"
        folder.mkdir()
        (folder / "vendor").write_text(f"{vendor}\n")
        (folder / "device").write_text(f"{device}\n")
    (tmp_path / "0000:00:09.0").mkdir()
    assert ask("kubernetes", "Causeway::Efa.adapters(folder)", folder=str(tmp_path)) == 2
    assert ask("kubernetes", "Causeway::Efa.adapters") == 0
    assert ask("kubernetes", "Causeway::Efa.driven(folder)", folder=str(tmp_path / "none")) == 0
    pages = tmp_path / "nr_hugepages"
    pages.write_text("4000\n")
    assert ask("kubernetes", "Causeway::Efa.huge_pages(path)", path=str(pages)) == 4000
    assert ask("kubernetes", "Causeway::Efa.huge_pages(path)", path=str(tmp_path / "none")) == 0


def test_the_attribute_is_the_catalogues_number() -> None:
    attributes = Path(__file__).parents[2] / "cookbooks/kubernetes/attributes/default.rb"
    assert f"'huge_pages' => {efa.HUGE_PAGES} }}" in attributes.read_text()
