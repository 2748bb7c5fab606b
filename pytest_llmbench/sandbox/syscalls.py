"""The seccomp filter: what a confined program may ask of the kernel. All that is not named here does not exist for it.

The list allows instead of forbidding: a system call of a later kernel is refused as an unknown one, which libraries
are used to. What is named as forbidden is refused with "operation not permitted", so that programs say something clear.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import tempfile
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from pytest_llmbench.sandbox import kernel as k

if TYPE_CHECKING:
    from pytest_llmbench.sandbox.jail import Profile

_ALLOWED: Final = """
    read readv pread64 preadv preadv2 write writev pwrite64 pwritev pwritev2 close close_range lseek _llseek
    open openat creat stat fstat lstat newfstatat fstatat64 statx statfs fstatfs access faccessat faccessat2
    readlink readlinkat getcwd chdir fchdir getdents getdents64 mkdir mkdirat rmdir rename renameat renameat2
    link linkat unlink unlinkat symlink symlinkat truncate ftruncate fallocate fsync fdatasync flock umask
    fadvise64 sendfile copy_file_range dup dup2 dup3 pipe pipe2
    poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2
    eventfd eventfd2 timerfd_create timerfd_settime timerfd_gettime signalfd signalfd4
    recvfrom shutdown getsockname getpeername getsockopt
    mmap mprotect munmap mremap madvise brk msync mincore membarrier
    futex set_robust_list get_robust_list rseq set_tid_address arch_prctl
    sched_yield sched_getaffinity sched_getparam sched_getscheduler sched_get_priority_max sched_get_priority_min
    getcpu rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigsuspend sigaltstack pause
    alarm setitimer getitimer timer_create timer_settime timer_gettime timer_getoverrun timer_delete
    nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday time times
    getpid gettid getppid getuid geteuid getgid getegid getresuid getresgid getgroups getpgid getpgrp getsid
    uname sysinfo getrusage getrandom getrlimit getpriority restart_syscall exit exit_group wait4 waitid
"""
_FORBIDDEN: Final = """
    socket connect bind listen accept accept4 setsockopt sendmsg sendmmsg recvmsg recvmmsg
    ptrace process_vm_readv process_vm_writev process_madvise kcmp pidfd_getfd
    rt_sigqueueinfo rt_tgsigqueueinfo
    memfd_create memfd_secret shmget shmat shmctl semget semctl semop semtimedop msgget msgsnd msgrcv msgctl
    mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr
    mount umount2 move_mount open_tree fsopen fsmount fspick fsconfig mount_setattr pivot_root chroot unshare setns
    bpf perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register add_key request_key keyctl
    open_by_handle_at name_to_handle_at inotify_init inotify_init1 inotify_add_watch fanotify_init fanotify_mark
    setuid setgid setreuid setregid setresuid setresgid setgroups setfsuid setfsgid capset personality
    setrlimit setpriority ioprio_set sched_setaffinity sched_setparam sched_setscheduler sched_setattr
    migrate_pages move_pages mbind set_mempolicy mlock mlock2 mlockall
    init_module finit_module delete_module kexec_load kexec_file_load reboot swapon swapoff syslog acct quotactl
    settimeofday clock_settime clock_adjtime adjtimex sethostname setdomainname vhangup iopl ioperm lookup_dcookie
"""
_NO_ATTRIBUTES: Final = """
    getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr
    setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr
"""
_OF_MODE_AND_TIME: Final = """
    chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utime utimes utimensat futimesat
"""
_SIGNALS: Final = "kill tkill tgkill"
_NEW_PROCESSES: Final = "fork vfork execve setsid setpgid"


@dataclass(frozen=True)
class Freedom:
    """What depends on the layer: the parts that something else already confines, and that may therefore be allowed."""

    signals: bool
    """They cannot leave the sandbox."""
    modes: bool
    """No file outside belongs to the user of the program or is visible to it. Where this is False, changing modes and
    times succeeds without effect: programs that copy files go on, and nothing outside is touched."""


@cache
def program(profile: Profile, freedom: Freedom) -> bytes:
    """The filter as the kernel takes it, built once a session for each profile.

    Raises:
        ImportError, RuntimeError: without libseccomp.
        OSError: where libseccomp refuses a rule.
    """
    import pyseccomp as seccomp  # type: ignore[import-untyped]

    rules = seccomp.SyscallFilter(seccomp.ERRNO(errno.ENOSYS))
    rules.set_attr(seccomp.Attr.ACT_BADARCH, seccomp.KILL_PROCESS)
    adder = _Adder(seccomp, rules)
    refused, allowed = seccomp.ERRNO(errno.EPERM), seccomp.ALLOW
    adder.add(allowed, _ALLOWED)
    adder.add(refused, _FORBIDDEN)
    adder.add(seccomp.ERRNO(errno.ENOTSUP), _NO_ATTRIBUTES)
    adder.add(allowed if freedom.modes else seccomp.ERRNO(0), _OF_MODE_AND_TIME)
    adder.add(allowed if freedom.signals else refused, _SIGNALS)
    adder.add(allowed if profile == "tool" else refused, _NEW_PROCESSES)
    _add_conditional(adder, seccomp, profile)
    return _exported(rules)


def _add_conditional(adder: _Adder, seccomp: Any, profile: Profile) -> None:
    equal, masked, argument, allowed = seccomp.EQ, seccomp.MASKED_EQ, seccomp.Arg, seccomp.ALLOW
    for command in k.FCNTL_COMMANDS:
        adder.add(allowed, "fcntl", argument(1, equal, command))
    for request in k.IOCTL_REQUESTS:
        adder.add(allowed, "ioctl", argument(1, equal, request))
    for option in (k.PR_SET_NAME, k.PR_GET_NAME, k.PR_SET_VMA):
        adder.add(allowed, "prctl", argument(0, equal, option))
    adder.add(allowed, "prlimit64", argument(0, equal, 0), argument(2, equal, 0))
    # A pair of connected streams is all that exists of sockets; a datagram could be sent to an address outside.
    pair = (argument(0, equal, socket.AF_UNIX), argument(1, masked, k.SOCK_TYPE_MASK, socket.SOCK_STREAM))
    adder.add(allowed, "socketpair", *pair)
    adder.add(allowed, "sendto", argument(k.SENDTO_ADDRESS, equal, 0))
    adder.add(allowed, "mknod", argument(1, masked, k.FILE_TYPE_MASK, stat.S_IFIFO))
    adder.add(allowed, "mknodat", argument(2, masked, k.FILE_TYPE_MASK, stat.S_IFIFO))
    if profile == "tool":
        adder.add(allowed, "clone", argument(0, masked, k.CLONE_NAMESPACES, 0))
    else:
        bits = k.CLONE_NAMESPACES | k.CLONE_THREAD
        adder.add(allowed, "clone", argument(0, masked, bits, k.CLONE_THREAD))
        adder.add(seccomp.ERRNO(errno.EPERM), "clone", argument(0, masked, k.CLONE_THREAD, 0))


class _Adder:
    """Adds rules by name and passes over names that this architecture or this libseccomp does not have."""

    def __init__(self, seccomp: Any, rules: Any) -> None:
        self._seccomp, self._rules = seccomp, rules

    def add(self, action: int, names: str, *conditions: object) -> None:
        """Add the same rule for each of these system calls; names are separated by spaces.

        Raises:
            OSError: where libseccomp refuses.
        """
        for name in names.split():
            try:
                number = self._seccomp.resolve_syscall(self._seccomp.system_arch(), name)
            except (ValueError, OSError):
                continue
            if number >= 0:
                self._rules.add_rule(action, number, *conditions)


def _exported(rules: Any) -> bytes:
    with tempfile.TemporaryFile() as file:
        rules.export_bpf(file)
        os.lseek(file.fileno(), 0, os.SEEK_SET)
        return file.read()
