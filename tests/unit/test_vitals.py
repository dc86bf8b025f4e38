"""Vitals: read from trees of files as different machines have them, and once from this one."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.vitals import Vitals

PAGE = os.sysconf("SC_PAGE_SIZE")
HIGH = 9223372036854771712  # what version 1 of control groups says for "no limit"


class Tree:
    """A machine with 1 GiB, as files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("proc/meminfo", "MemTotal:        1048576 kB\nMemFree:  1 kB\n")
        self.write("proc/self/statm", "5000 300 20 1 0 900 0\n")

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def vitals(self) -> Vitals:
        return Vitals(None, self.root / "proc", self.root / "cgroup")


def test_the_memory_used_is_the_resident_memory(tmp_path: Path) -> None:
    assert Tree(tmp_path).vitals().memory_used_bytes() == 300 * PAGE


def test_without_control_groups_the_machines_memory_counts(tmp_path: Path) -> None:
    assert Tree(tmp_path).vitals().memory_bytes() == 1 << 30


def test_in_version_2_the_lowest_limit_of_a_group_and_those_above_counts(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.write("proc/self/cgroup", "0::/a.slice/b.service\n")
    tree.write("cgroup/a.slice/b.service/memory.max", "max\n")
    assert tree.vitals().memory_bytes() == 1 << 30
    tree.write("cgroup/a.slice/memory.max", "1000000\n")
    assert tree.vitals().memory_bytes() == 1_000_000


def test_in_version_1_the_memory_controllers_limit_counts(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.write("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/a/b\n0::/\n")
    tree.write("cgroup/memory/memory.limit_in_bytes", f"{HIGH}\n")
    tree.write("cgroup/memory/a/b/memory.limit_in_bytes", f"{HIGH}\n")
    assert tree.vitals().memory_bytes() == 1 << 30
    tree.write("cgroup/memory/a/b/memory.limit_in_bytes", "2000000\n")
    assert tree.vitals().memory_bytes() == 2_000_000


def test_in_a_container_whose_path_leads_nowhere_the_top_is_its_group(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.write("proc/self/cgroup", "4:memory:/docker/0123abc\n")
    tree.write("cgroup/memory/memory.limit_in_bytes", "3000000\n")
    assert tree.vitals().memory_bytes() == 3_000_000


def test_a_limit_above_the_machines_memory_is_none(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.write("proc/self/cgroup", "0::/\n")
    tree.write("cgroup/memory.max", f"{1 << 40}\n")
    assert tree.vitals().memory_bytes() == 1 << 30


def test_a_machine_without_proc_cannot_be_told(tmp_path: Path) -> None:
    vitals = Vitals(None, tmp_path / "none", tmp_path / "none")
    assert vitals.memory_used_bytes() == 0
    assert vitals.memory_bytes() == 0
    assert vitals.core_wait() == (0, 0)


def test_the_disk_is_the_data_directorys(tmp_path: Path) -> None:
    assert Vitals(None).disk_free_bytes() is None
    assert Vitals(tmp_path / "gone").disk_free_bytes() is None
    free = Vitals(tmp_path).disk_free_bytes()
    assert free is not None
    assert free > 0


def test_this_machine_can_be_read(tmp_path: Path) -> None:
    vitals = Vitals(tmp_path)
    vitals.give_back()
    assert min(vitals.core_wait()) >= 0  # 0 where the kernel does not count
    assert 1_000_000 < vitals.memory_used_bytes() < vitals.memory_bytes()
