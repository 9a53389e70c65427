from __future__ import annotations

import pytest

from infra.catalogue import gpus, instances, regions
from infra.catalogue.instances import Gpu, InstanceType


def the(name: str) -> InstanceType:
    found = instances.find(name)
    assert found is not None, name
    return found


def test_every_type_has_a_believable_shape() -> None:
    for name in instances.names():
        one = the(name)
        assert one.name == name
        assert one.vcpus > 0, name
        assert one.memory_mib >= 500, name
        assert one.architectures, name
        assert set(one.architectures) <= {"x86_64", "arm64", "x86_64_mac", "arm64_mac"}, name
        assert one.network, name
        assert one.network_gbps > 0 or one.retired, name
        assert one.network_cards >= 1, name
        assert one.efa == (one.efa_interfaces > 0), name
        assert f"{one.family}.{one.size}" == name


def test_every_gpu_is_a_gpu_that_the_catalogue_knows() -> None:
    with_gpus = [the(name) for name in instances.names() if the(name).gpus]
    assert len(with_gpus) > 60
    for one in with_gpus:
        assert one.gpus is not None
        model = gpus.find(one.gpus.model)
        assert model is not None, one.name
        assert model.slug == one.gpus.model, one.name
        assert one.gpus.count >= 1, one.name
        assert one.gpus.memory_mib == pytest.approx(model.memory_mib * one.gpus.share, rel=0.001), one.name


@pytest.mark.parametrize(
    ("name", "vcpus", "gib", "gpu", "gbps"),
    [
        # https://aws.amazon.com/ec2/previous-generation/ and the pages of P2 and P3
        ("p2.xlarge", 4, 61, Gpu("k80", 1, 12288), 10),
        ("g2.2xlarge", 8, 15, Gpu("k520", 1, 4096), 0),
        ("g2.8xlarge", 32, 60, Gpu("k520", 4, 4096), 0),
        ("g3s.xlarge", 4, 30.5, Gpu("m60", 1, 8192), 10),
    ],
)
def test_retired_types(name: str, vcpus: int, gib: float, gpu: Gpu, gbps: float) -> None:
    one = the(name)
    assert (one.vcpus, one.memory_mib, one.gpus, one.network_gbps) == (vcpus, gib * 1024, gpu, gbps)
    assert one.retired
    assert not one.nitro
    assert not one.efa
    assert one.architectures == ("x86_64",)


@pytest.mark.parametrize(
    ("name", "vcpus", "gib", "gpu", "efa", "gbps", "interconnect"),
    [
        ("p3dn.24xlarge", 96, 768, Gpu("v100-32gb", 8, 32768), 1, 100, "nvlink"),
        ("p4d.24xlarge", 96, 1152, Gpu("a100-40gb", 8, 40960), 4, 400, "nvswitch"),
        ("p5.48xlarge", 192, 2048, Gpu("h100", 8, 81920), 32, 3200, "nvswitch"),
        ("p5.4xlarge", 16, 256, Gpu("h100", 1, 81920), 1, 100, None),
        ("g5.12xlarge", 48, 192, Gpu("a10g", 4, 22888), 1, 40, None),
        ("g6f.large", 2, 8, Gpu("l4", 1, 2861, 0.125), 0, 10, None),
    ],
)
def test_gpu_types(
    name: str, vcpus: int, gib: int, gpu: Gpu, efa: int, gbps: float, interconnect: str | None
) -> None:
    one = the(name)
    assert (one.vcpus, one.memory_mib, one.gpus, one.network_gbps) == (vcpus, gib * 1024, gpu, gbps)
    assert (one.efa_interfaces, one.interconnect) == (efa, interconnect)
    assert not one.retired
    assert one.nitro


def test_plain_types() -> None:
    assert the("m6g.large").architectures == ("arm64",)
    assert the("m5.large").architectures == ("x86_64",)
    assert the("m5.large").gpus is None
    assert the("m5.metal").bare_metal
    assert the("m5.metal").nitro
    assert not the("m4.large").nitro
    assert not the("mac2.metal").spot
    assert the("p4d.24xlarge").local_disk_gb == 8000
    assert the("m5.large").interconnect is None
    assert the("p3.16xlarge").interconnect == "nvlink"
    assert the("p3.2xlarge").interconnect is None


def test_unknown_types() -> None:
    for name in ("p9.xlarge", "", "P3.2xlarge", "p3"):
        assert instances.find(name) is None


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        # slips of the pen
        ("P3.2xlarge", "p3.2xlarge"),
        ("p3-2xlarge", "p3.2xlarge"),
        ("p3_2xlarge", "p3.2xlarge"),
        ("p3.2xl", "p3.2xlarge"),
        ("m6i.xlrge", "m6i.xlarge"),
        ("mi6.large", "m6i.large"),
        # no such size in the family
        ("p3.xlarge", "p3.2xlarge"),
        ("g5.3xlarge", "g5.4xlarge"),
        ("p5.24xlarge", "p5.48xlarge"),
        # no such generation
        ("p9.xlarge", "p3.2xlarge"),
        ("c55.large", "c5.large"),
        ("t5.medium", "t3.medium"),
        # no such option: Intel, or the only one there is
        ("m6.large", "m6i.large"),
        ("m9.large", "m8i.large"),
        ("p4.24xlarge", "p4d.24xlarge"),
        ("p6.48xlarge", "p6-b200.48xlarge"),
        ("g4ad.xlarge", "g4dn.xlarge"),
        # nothing is near
        ("", ""),
        (".", ""),
        ("virtual machine", ""),
        ("t3.tiny", ""),
    ],
)
def test_suggestions(said: str, meant: str) -> None:
    assert instances.suggest(said) == meant


def test_a_suggestion_is_a_type_and_never_changes() -> None:
    for name in ("p9.xlarge", "zz9.large", "m5.0xlarge", "x.2xlarge", "g99.metal", "a.b.c", "u-1tb1.metal"):
        first = instances.suggest(name)
        assert not first or instances.find(first) is not None
        assert instances.suggest(name) == first


def test_bandwidth_as_aws_words_it() -> None:
    assert instances.bandwidth_gbps("Up to 12.5 Gigabit") == 12.5
    assert instances.bandwidth_gbps("16x 200 Gigabit") == 3200
    assert instances.bandwidth_gbps("Moderate") is None


def test_zones_and_regions_fit() -> None:
    for name in regions.names():
        region = regions.find(name)
        assert region is not None
        assert len(region.zones) >= 2, name
        assert list(region.zones) == sorted(set(region.zones))
        assert all(zone.startswith(name) for zone in (*region.zones, *region.older_zones))
        assert not set(region.zones) & set(region.older_zones)
        assert region.partition == {"cn": "aws-cn", "us-gov": "aws-us-gov"}.get(name.rsplit("-", 2)[0], "aws")
        assert "(" in region.location
    research = ("us-west-2a", "us-west-2b", "us-west-2c", "us-east-1a", "eu-west-1c")
    for zone in research:
        found = regions.find(zone[:-1])
        assert found is not None
        assert zone in found.zones


def test_offers_name_zones_that_exist() -> None:
    for name in instances.names():
        somewhere = False
        for place in regions.names():
            zones = regions.offered(name, place)
            region = regions.find(place)
            assert region is not None
            assert all(map(region.has_zone, zones or ())), (name, zones)
            somewhere = somewhere or bool(zones)
        assert somewhere, name


def test_offers() -> None:
    assert regions.offered("m5.large", "us-west-2") == (
        "us-west-2a",
        "us-west-2b",
        "us-west-2c",
        "us-west-2d",
    )
    assert regions.offered("p4d.24xlarge", "eu-west-3") == ()
    assert regions.offered("p3.2xlarge", "eu-west-1") == ("eu-west-1b", "eu-west-1c")
    assert regions.offered("p3.2xlarge", "eu-west-3") == ()
    assert regions.offered("p9.xlarge", "us-west-2") is None
    assert regions.offered("m5.large", "cn-north-1") is None, "nobody has asked there"
    assert regions.offered("m5.large", "nowhere") is None


def test_older_accounts_have_zones_that_new_ones_lack() -> None:
    region = regions.find("us-west-1")
    assert region is not None
    assert region.has_zone("us-west-1c")
    assert "us-west-1c" not in region.zones
    assert not region.has_zone("us-west-1d")


def test_ids_of_zones_are_those_of_their_region() -> None:
    """Of all that moto knows from AWS."""
    # Imported here: it takes a second, and each worker imports all files.
    from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend

    for name, zones in RegionsAndZonesBackend.zones.items():
        region = regions.find(name)
        for zone in zones if region is not None else ():
            assert regions.is_zone_id(zone.zone_id)
            assert not regions.is_zone_id(zone.name)
            assert region is not None
            assert region.has_zone(zone.zone_id)
    us_west = regions.find("us-west-2")
    assert us_west is not None
    assert not us_west.has_zone("use1-az1")


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("uswest2", "us-west-2"),
        ("us-west2", "us-west-2"),
        ("US-West-2", "us-west-2"),
        ("us_west_2", "us-west-2"),
        ("us-west-2a", "us-west-2"),
        ("us-wset-2", "us-west-2"),
        ("eu-cental-1", "eu-central-1"),
        ("atlantis", ""),
    ],
)
def test_region_suggestions(said: str, meant: str) -> None:
    assert regions.suggest_region(said) == meant


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("b", "us-west-2b"),
        ("us-east-1c", "us-west-2c"),
        ("us-west-2z", "us-west-2d"),
        ("us-west-2", "us-west-2a"),
    ],
)
def test_zone_suggestions(said: str, meant: str) -> None:
    assert regions.suggest_zone("us-west-2", said) == meant
    assert regions.suggest_zone("nowhere", said) == ""
