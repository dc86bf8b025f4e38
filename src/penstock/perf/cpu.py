"""Cpu: how much processor time a broker has used, from /proc. Where there is no /proc, nothing is known.

Not here: the load tool's own time (time.process_time says it).
"""

import os
from pathlib import Path

PROC = Path("/proc")
LISTEN = "0A"  # TCP_LISTEN in /proc/net/tcp
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def used_s(pid: int | None) -> float | None:
    """User and system time of a process, its living descendants and its ended children; None if it is not there."""
    members = family(pid)
    if not members:
        return None
    ticks = sum(sum(map(int, fields[11:15])) for fields in members.values())  # utime, stime, cutime, cstime
    return ticks / os.sysconf("SC_CLK_TCK")


def family(pid: int | None) -> dict[int, list[str]]:
    """A process and its living descendants, with their fields of /proc/PID/stat from the state on."""
    if pid is None:
        return {}
    everyone: dict[int, list[str]] = {}
    children: dict[int, list[int]] = {}
    for entry in PROC.glob("[0-9]*"):
        fields = _stat(entry)
        if fields:
            everyone[int(entry.name)] = fields
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found: dict[int, list[str]] = {}
    waiting = [pid] if pid in everyone else []
    while waiting:
        member = waiting.pop()
        found[member] = everyone[member]
        waiting += children.get(member, [])
    return found


def per_message_us(start_s: float | None, end_s: float | None, messages: int) -> float | None:
    if start_s is None or end_s is None or not messages:
        return None
    return (end_s - start_s) * 1e6 / messages


def listener(host: str, port: int) -> int | None:
    """The pid of the process on this machine that listens on the port; None if it is not ours to see."""
    if host not in LOOPBACK:
        return None
    sockets = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    if not sockets:
        return None
    for entry in PROC.glob("[0-9]*"):
        try:
            if any(os.readlink(link) in sockets for link in (entry / "fd").iterdir()):
                return int(entry.name)
        except OSError:
            continue  # it ended meanwhile, or is not ours to look at
    return None


def _listening_inodes(port: int) -> list[str]:
    found = []
    for name in ("tcp", "tcp6"):
        try:
            lines = (PROC / "net" / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == LISTEN and int(fields[1].rsplit(":", 1)[1], 16) == port:
                found.append(fields[9])
    return found


def _stat(entry: Path) -> list[str]:
    """The fields of /proc/PID/stat from the state on: the name before it may hold blanks and brackets."""
    try:
        return (entry / "stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return []
