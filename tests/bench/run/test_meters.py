"""Counters of the system, written by the test."""

from __future__ import annotations

from pathlib import Path

from offramp.bench.run.meters import Energy, in_large_pages, peak_bytes


def test_peak_memory(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("Name:\tpython\nVmPeak:\t  9000 kB\nVmHWM:\t  1234 kB\n")
    assert peak_bytes(status) == 1234 * 1024
    assert peak_bytes(tmp_path / "none") is None
    if Path("/proc/self/status").exists():
        assert (peak_bytes() or 0) > 2**20


def test_large_pages(tmp_path: Path) -> None:
    rollup = tmp_path / "rollup"
    for large, expected in ((400, False), (600, True)):
        rollup.write_text(f"header\nRss:  1000 kB\nAnonHugePages:  {large} kB\n")
        assert in_large_pages(rollup) is expected
    assert not in_large_pages(tmp_path / "none")


def zone(folder: Path, number: str, name: str, energy: int) -> Path:
    place = folder / f"intel-rapl:{number}"
    place.mkdir(exist_ok=True)
    for file, text in (("name", name), ("energy_uj", energy), ("max_energy_range_uj", 1000_000)):
        (place / file).write_text(f"{text}\n")
    return place


def test_energy_of_all_processors_and_of_no_part_twice(tmp_path: Path) -> None:
    for number, name in (("0", "package-0"), ("0:0", "core"), ("1", "package-1"), ("2", "psys")):
        zone(tmp_path, number, name, 100_000)
    energy = Energy(tmp_path)
    for number, name in (("0", "package-0"), ("0:0", "core"), ("2", "psys")):
        zone(tmp_path, number, name, 600_000)
    assert energy.joules() == 0.5


def test_a_counter_that_wraps_around(tmp_path: Path) -> None:
    zone(tmp_path, "0", "package-0", 900_000)
    energy = Energy(tmp_path)
    zone(tmp_path, "0", "package-0", 100_000)
    assert energy.joules() == 0.2


def test_a_machine_that_does_not_tell(tmp_path: Path) -> None:
    assert Energy(tmp_path).joules() is None
    assert Energy(tmp_path / "none").joules() is None
    place = zone(tmp_path, "0", "package-0", 100_000)
    (place / "energy_uj").unlink()
    assert Energy(tmp_path).joules() is None
