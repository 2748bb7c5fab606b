"""Landlock: a set of rules, made outside; the confined process only puts itself under it."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from pytest_llmbench.sandbox import kernel as k

READ = k.FS_READ_FILE | k.FS_READ_DIR
RUN = READ | k.FS_EXECUTE
DEVICE = k.FS_READ_FILE | k.FS_WRITE_FILE | k.FS_TRUNCATE
WRITE = (
    READ
    | k.FS_WRITE_FILE
    | k.FS_REMOVE_DIR
    | k.FS_REMOVE_FILE
    | k.FS_MAKE_DIR
    | k.FS_MAKE_REG
    | k.FS_MAKE_FIFO
    | k.FS_MAKE_SYM
    | k.FS_REFER
    | k.FS_TRUNCATE
)
_OF_FILES = k.FS_EXECUTE | k.FS_WRITE_FILE | k.FS_READ_FILE | k.FS_TRUNCATE | k.FS_IOCTL_DEV
_FIRST_RIGHTS = (k.FS_MAKE_SYM << 1) - 1
_LATER_RIGHTS = {k.ABI_REFER: k.FS_REFER, k.ABI_TRUNCATE: k.FS_TRUNCATE, k.ABI_IOCTL_DEV: k.FS_IOCTL_DEV}


@dataclass(frozen=True)
class Rule:
    """What is allowed at and beneath a path."""

    path: str
    rights: int


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _syscall(*arguments: object) -> int:
    """A system call of the C library.

    Raises:
        OSError: where it fails.
    """
    result: int = _library().syscall(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


@cache
def abi() -> int:
    """Version of the kernel's Landlock interface; 0 without Landlock."""
    try:
        return _syscall(k.SYS_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), k.LANDLOCK_CREATE_RULESET_VERSION)
    except (OSError, AttributeError):
        return 0


def handled() -> int:
    """Every right on files that this kernel knows: what no rule allows is forbidden."""
    rights = _FIRST_RIGHTS
    for version, right in _LATER_RIGHTS.items():
        if abi() >= version:
            rights |= right
    return rights


@contextmanager
def ruleset(rules: Iterable[Rule]) -> Iterator[int]:
    """The descriptor of a set of these rules; paths that do not exist are left out.

    No TCP port may be bound or reached under it, and no signal and no abstract socket leaves its processes, as far as
    this kernel can forbid it.

    Raises:
        OSError: where the kernel refuses.
    """
    network = k.NET_BIND_TCP | k.NET_CONNECT_TCP if abi() >= k.ABI_NET else 0
    scoped = k.SCOPE_ABSTRACT_UNIX_SOCKET | k.SCOPE_SIGNAL if abi() >= k.ABI_SCOPE else 0
    attributes = struct.pack("=Q", handled())
    if abi() >= k.ABI_NET:
        attributes += struct.pack("=Q", network)
    if abi() >= k.ABI_SCOPE:
        attributes += struct.pack("=Q", scoped)
    descriptor = _syscall(k.SYS_LANDLOCK_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    try:
        for rule in rules:
            _add(descriptor, rule)
        yield descriptor
    finally:
        os.close(descriptor)


def _add(descriptor: int, rule: Rule) -> None:
    try:
        target = os.open(rule.path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
            return
        raise
    try:
        rights = rule.rights & handled()
        if not stat.S_ISDIR(os.fstat(target).st_mode):
            rights &= _OF_FILES
        attribute = struct.pack("=Qi", rights, target)
        _syscall(k.SYS_LANDLOCK_ADD_RULE, descriptor, k.LANDLOCK_RULE_PATH_BENEATH, attribute, 0)
    finally:
        os.close(target)
