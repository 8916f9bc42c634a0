import pytest

from gnnperf.errors import InputError
from gnnperf.hardware import get_hardware, list_platforms
from gnnperf.hardware.processors import (
    find_processor,
    get_processor,
    list_processors,
    usual_processor,
)


def test_speed_is_clock_times_work_per_clock() -> None:
    assert get_processor("xeon-e5-2698-v4").speed == pytest.approx(3.6)
    assert get_processor("epyc-7742").speed == pytest.approx(3.4 * 1.15)


@pytest.mark.parametrize(
    "name",
    [
        "2x AMD EPYC 7742",
        "AMD EPYC 7742 64-Core Processor",
        "epyc 7742",
        "EPYC-7742",
    ],
)
def test_names_as_systems_write_them(name: str) -> None:
    found = find_processor(name)
    assert found is not None
    assert found.name == "epyc-7742"


def test_intel_names_as_systems_write_them() -> None:
    found = find_processor("Intel(R) Xeon(R) CPU E5-2698 v4 @ 2.20GHz")
    assert found is not None
    assert found.name == "xeon-e5-2698-v4"


def test_an_unknown_cpu_is_refused_with_what_is_close() -> None:
    with pytest.raises(InputError, match="epyc-7742"):
        get_processor("epyc-7743x")


def test_every_cpu_has_a_source_and_a_plausible_speed() -> None:
    assert len(list_processors()) >= 10
    for processor in list_processors():
        assert 2.0 < processor.speed < 12.0
        assert len(processor.source) > 20


def test_later_generations_of_a_vendor_are_faster() -> None:
    for names in (
        ("epyc-7742", "epyc-7763", "epyc-9654"),
        ("xeon-e5-2698-v4", "xeon-platinum-8480c"),
    ):
        speeds = [get_processor(n).speed for n in names]
        assert speeds == sorted(speeds)


def test_platforms_name_cpus_that_the_catalogue_has_or_none() -> None:
    named = {p.cpu for p in list_platforms()}
    known = [cpu for cpu in named if find_processor(cpu) is not None]
    assert len(known) >= 6
    h100 = usual_processor(get_hardware("h100-sxm"))
    assert h100 is not None
    assert h100.name == "xeon-platinum-8480c"
    assert usual_processor(get_hardware("rtx-2080-ti")) is None
