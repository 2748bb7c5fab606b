"""Numbers of the Linux kernel's interface that the confinement uses. They are given, not chosen."""

from __future__ import annotations

from typing import Final

TESTED_MACHINES: Final = ("x86_64",)
KNOWN_MACHINES: Final = (*TESTED_MACHINES, "aarch64")
"""On others, numbers below or names in the filter may mean something else: they are refused."""

SYS_LANDLOCK_CREATE_RULESET: Final = 444
SYS_LANDLOCK_ADD_RULE: Final = 445
SYS_LANDLOCK_RESTRICT_SELF: Final = 446
LANDLOCK_CREATE_RULESET_VERSION: Final = 1
LANDLOCK_RULE_PATH_BENEATH: Final = 1

FS_EXECUTE: Final = 1 << 0
FS_WRITE_FILE: Final = 1 << 1
FS_READ_FILE: Final = 1 << 2
FS_READ_DIR: Final = 1 << 3
FS_REMOVE_DIR: Final = 1 << 4
FS_REMOVE_FILE: Final = 1 << 5
FS_MAKE_CHAR: Final = 1 << 6
FS_MAKE_DIR: Final = 1 << 7
FS_MAKE_REG: Final = 1 << 8
FS_MAKE_SOCK: Final = 1 << 9
FS_MAKE_FIFO: Final = 1 << 10
FS_MAKE_BLOCK: Final = 1 << 11
FS_MAKE_SYM: Final = 1 << 12
FS_REFER: Final = 1 << 13
FS_TRUNCATE: Final = 1 << 14
FS_IOCTL_DEV: Final = 1 << 15
NET_BIND_TCP: Final = 1 << 0
NET_CONNECT_TCP: Final = 1 << 1
SCOPE_ABSTRACT_UNIX_SOCKET: Final = 1 << 0
SCOPE_SIGNAL: Final = 1 << 1

ABI_FIRST: Final = 1
ABI_REFER: Final = 2
ABI_TRUNCATE: Final = 3
ABI_NET: Final = 4
ABI_IOCTL_DEV: Final = 5
ABI_SCOPE: Final = 6

PR_SET_PDEATHSIG: Final = 1
PR_SET_KEEPCAPS: Final = 8
PR_SET_NAME: Final = 15
PR_GET_NAME: Final = 16
PR_SET_SECCOMP: Final = 22
PR_SET_CHILD_SUBREAPER: Final = 36
PR_SET_NO_NEW_PRIVS: Final = 38
PR_CAP_AMBIENT: Final = 47
PR_CAP_AMBIENT_RAISE: Final = 2
PR_SET_VMA: Final = 0x53564D41
SECCOMP_MODE_FILTER: Final = 2
BPF_INSTRUCTION_BYTES: Final = 8
CAP_DAC_READ_SEARCH: Final = 2
CAP_VERSION_3: Final = 0x20080522
CAP_WORD_BYTES: Final = 4

CLONE_THREAD: Final = 0x00010000
CLONE_NAMESPACES: Final = 0x7E020000
"""NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET together."""

FCNTL_COMMANDS: Final = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1032)
"""Duplicating, flags, locks and the size of a pipe; none that sends signals or sets a lease."""
IOCTL_REQUESTS: Final = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX."""

SENDTO_ADDRESS: Final = 4
"""Which argument of sendto is the address."""
SOCK_TYPE_MASK: Final = 0xF
FILE_TYPE_MASK: Final = 0xF000

KERNEL_OF_NPROC_BY_NAMESPACE: Final = (5, 14)
"""Since this version a user namespace has its own count of processes."""

STAT_CPU: Final = (11, 12, 13, 14)
"""Where times stand in ``/proc/<pid>/stat`` behind the name: user and system, its own and of children waited for."""
STAT_THREADS: Final = 17
STAT_RESIDENT: Final = 21
MAPS_DEVICE: Final = 3
MAPS_INODE: Final = 4
MAPS_BASE: Final = 16
BLOCK_BYTES: Final = 512
"""Unit of ``st_blocks``."""
KIB: Final = 1_024
"""Unit of ``smaps_rollup``."""
SHELL_SIGNAL: Final = 128
"""bwrap tells a signal as this number and the signal's, as a shell does."""
