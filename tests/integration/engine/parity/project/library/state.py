#!/usr/bin/python
"""What is left of whoever was here before."""
import json
import os
import resource
import signal
import sys
import threading

from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule(argument_spec={})
module.exit_json(
    cwd=os.getcwd(),
    umask=oct(os.umask(0o022)),
    leaked=os.environ.get("LEAKED"),
    path="/leaked" in sys.path,
    argv=len(sys.argv),
    json=hasattr(json, "leaked"),
    recursion=sys.getrecursionlimit(),
    term=str(signal.getsignal(signal.SIGTERM)),
    child=str(signal.getsignal(signal.SIGCHLD)),
    files=resource.getrlimit(resource.RLIMIT_NOFILE),
    nice=os.nice(0),
    threads=threading.active_count(),
    descriptors=len(os.listdir("/proc/self/fd")),
    pid_is_own=os.getpid() > 1,
)
