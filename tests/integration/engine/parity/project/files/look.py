"""Everything that code can see of the process it runs in. Run by plugins and by a module, wherever those run."""

import ctypes
import gc
import locale
import logging
import multiprocessing
import os
import resource
import signal
import socket
import stat
import sys
import tempfile
import threading
import time
import warnings

_KINDS = {
    stat.S_IFIFO: "pipe",
    stat.S_IFCHR: "device",
    stat.S_IFSOCK: "socket",
    stat.S_IFREG: "file",
    stat.S_IFDIR: "folder",
}


def _descriptors():
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            kind = _KINDS.get(stat.S_IFMT(os.fstat(int(name)).st_mode), "other")
        except OSError:
            continue  # the listing's own
        found[name] = kind + (" tty" if os.isatty(int(name)) else "")
        if kind == "device":
            found[name] += " null" if os.fstat(int(name)).st_rdev == os.stat(os.devnull).st_rdev else ""
    return found


def _standard():
    """Only the three that programs count on, and whether others would be inherited by what is started."""
    gc.collect()  # at an allocation below, it would close descriptors that are listed already
    found = _descriptors()
    inherited = [name for name in found if int(name) > 2 and os.get_inheritable(int(name))]
    return {"standard": {name: found.get(name) for name in "012"}, "inheritable": [found[name] for name in inherited]}


def _handler(number):
    handler = signal.getsignal(number)
    return getattr(handler, "name", None) or getattr(handler, "__qualname__", None) or str(handler)


def _signals():
    numbers = sorted(signal.valid_signals())
    return {
        "handlers": {signal.Signals(n).name if n in set(signal.Signals) else str(n): _handler(n) for n in numbers},
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "alarm": signal.getitimer(signal.ITIMER_REAL),
        "wakeup": signal.set_wakeup_fd(-1),
    }


def _kernel():
    """What the kernel keeps of a process (proc_pid_status(5))."""
    names = {"SigBlk", "SigIgn", "Seccomp", "NoNewPrivs", "CapInh", "CapPrm", "CapEff", "CapBnd", "Uid", "Gid", "Groups"}
    with open("/proc/self/status", encoding="ascii") as file:
        found = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    option = ctypes.c_int()
    library = ctypes.CDLL(None)
    library.prctl(2, ctypes.byref(option), 0, 0, 0)
    kernel = {name: found[name] for name in sorted(names & found.keys())}
    with open("/proc/self/oom_score_adj", encoding="ascii") as file:
        kernel["oom_score_adj"] = file.read().strip()
    return {**kernel, "death signal": option.value, "dumpable": library.prctl(3, 0, 0, 0, 0)}


def _tree():
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
        terminal = True
    except OSError:
        terminal = False
    return {
        "session leader": os.getsid(0) == os.getpid(),
        "group leader": os.getpgrp() == os.getpid(),
        "session of parent": os.getsid(0) == os.getsid(os.getppid()),
        "group of parent": os.getpgrp() == os.getpgid(os.getppid()),
        "terminal": terminal,
        "nice": os.nice(0),
        "processors": sorted(os.sched_getaffinity(0)),
        "scheduler": os.sched_getscheduler(0),
    }


def _command():
    with open("/proc/self/cmdline", "rb") as file:
        # A process that changed what it shows has more zeros behind it than one that did not; ps(1) shows none.
        command = file.read().decode(errors="replace").rstrip("\0").split("\0")
    with open("/proc/self/comm", "rb") as file:
        return {"command": command, "name": file.read().decode(errors="replace").strip()}


def _stream(stream):
    names = ("encoding", "errors", "line_buffering", "name", "mode", "closed")
    return {f"stream_{name}": str(getattr(stream, name, None)) for name in names} if stream else None


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return oct(mask)


def _python():
    main = sys.modules.get("__main__")
    return {
        "argv": list(sys.argv),
        "path": list(sys.path),
        "flags": str(sys.flags),
        "executable": sys.executable,
        "prefixes": [sys.prefix, sys.base_prefix, sys.exec_prefix],
        "main": {"file": getattr(main, "__file__", None), "name": getattr(main, "__name__", None)},
        "recursion": sys.getrecursionlimit(),
        "switch": sys.getswitchinterval(),
        "integers": sys.get_int_max_str_digits(),
        "own exception hook": sys.excepthook is not sys.__excepthook__,
        "traced": sys.gettrace() is not None or sys.getprofile() is not None,
        "collector": [gc.isenabled(), gc.get_threshold()],
        "dont_write_bytecode": sys.dont_write_bytecode,
        "warnings": [str(entry) for entry in warnings.filters],
        "encodings": [sys.getdefaultencoding(), sys.getfilesystemencoding(), locale.getpreferredencoding(False)],
        "locale": locale.setlocale(locale.LC_ALL),
        "streams": [_stream(stream) for stream in (sys.stdin, sys.stdout, sys.stderr)],
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "is main thread": threading.current_thread() is threading.main_thread(),
        "process": [multiprocessing.current_process().name, multiprocessing.current_process().daemon],
        "parent": str(multiprocessing.parent_process() is not None),
        "start method": multiprocessing.get_start_method(allow_none=True),
        "temporary": tempfile.gettempdir(),
        "logging": [logging.root.level, len(logging.root.handlers)],
        "timeout": socket.getdefaulttimeout(),
        "zone": time.tzname,
        "finders": [getattr(finder, "__name__", type(finder).__name__) for finder in sys.meta_path],
        "path hooks": [getattr(hook, "__qualname__", str(type(hook))) for hook in sys.path_hooks],
    }


def look():
    """Return it as plain values."""
    return {
        "environment": dict(sorted(os.environ.items())),
        "cwd": os.getcwd(),
        "umask": _umask(),
        "descriptors": _standard(),
        "signals": _signals(),
        "kernel": _kernel(),
        "tree": _tree(),
        "process": _command(),
        "limits": {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name[:7] == "RLIMIT_"},
        "ids": [os.getuid(), os.geteuid(), os.getgid(), os.getegid(), sorted(os.getgroups())],
        "python": _python(),
    }
