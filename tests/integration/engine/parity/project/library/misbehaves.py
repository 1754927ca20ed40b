#!/usr/bin/python
"""Does what no module should: one way each, by `how`."""

import atexit
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time

from ansible.module_utils.basic import AnsibleModule

RESULT = json.dumps({"changed": False, "how": "well"})


class Way:
    def __init__(self, module):
        self.module = module

    def silent(self):
        os._exit(0)

    def exit_without_json(self):
        sys.exit(0)

    def exit_three(self):
        sys.exit(3)

    def exit_with_words(self):
        sys.exit("words")

    def at_once(self):
        print(RESULT)
        sys.stdout.flush()
        os._exit(4)

    def raise_error(self):
        raise RuntimeError("by intention: ünicode")

    def raise_base(self):
        raise KeyboardInterrupt

    def deep(self):
        return self.deep()

    def garbage_before(self):
        print("garbage {not json}\nmore")
        self.module.exit_json(how="well")

    def garbage_after(self):
        atexit.register(print, "garbage after")
        self.module.exit_json(how="well")

    def twice(self):
        print(json.dumps({"changed": True, "how": "first"}))
        self.module.exit_json(how="second")

    def two_lines(self):
        print('{"changed": true,\n "how": "lines"}')

    def list_result(self):
        print("[1, 2]")

    def not_utf8(self):
        sys.stdout.buffer.write(b'{"changed": false, "how": "b\xe4d \xff", "ok": "\xc3\xa4"}')

    def nulls(self):
        sys.stdout.write('{"changed": false, "how": "nul \\u0000 \\ud800 \x1b[31mred\x1b[0m"}')

    def huge_stderr(self):
        sys.stderr.write("line of stderr\n" * 20000)
        self.module.exit_json(how="well")

    def stderr_and_fail(self):
        sys.stderr.write("told on stderr\n")
        sys.exit(2)

    def abort(self):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.abort()

    def kill_itself(self):
        os.kill(os.getpid(), signal.SIGKILL)

    def terminate_itself(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)

    def segfault(self):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        import ctypes

        ctypes.string_at(0)

    def memory(self):
        resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))
        bytearray(1 << 30)

    def leak(self):
        """Leave everything changed that a process has."""
        self.files = [open(os.devnull) for _ in range(50)]
        os.chdir("/")
        os.umask(0o077)
        os.environ["LEAKED"] = "yes"
        sys.path.insert(0, "/leaked")
        sys.argv.append("leaked")
        sys.modules["json"].leaked = True
        sys.setrecursionlimit(200)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
        os.nice(1)
        threading.Thread(target=time.sleep, args=[30], daemon=True).start()
        self.module.exit_json(how="well")

    def thread(self):
        """A thread that ends after the main one: a process waits for it."""
        threading.Thread(target=lambda: (time.sleep(0.3), open(self.module.params["work"] + "/thread", "w").close())).start()
        self.module.exit_json(how="well")

    def closed_outputs(self):
        os.close(1)
        os.close(2)
        self.module.exit_json(how="nobody hears")

    def closed_stdin(self):
        os.close(0)
        self.module.exit_json(how="well")

    def background(self):
        """A child that outlives its parent but lets go of its output."""
        subprocess.Popen(
            ["sh", "-c", "sleep 0.4; echo ended > $0/background", self.module.params["work"]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.module.exit_json(how="well")

    def background_holds_output(self):
        """A child that holds the output open: whoever reads to its end waits."""
        subprocess.Popen(["sleep", "0.5"])
        self.module.exit_json(how="well")

    def forked(self):
        """A fork that goes on as the module after its parent has answered."""
        if os.fork() == 0:
            time.sleep(0.3)
            open(self.module.params["work"] + "/forked", "w").close()
            os._exit(0)
        self.module.exit_json(how="well")

    def zombie(self):
        if os.fork() == 0:
            os._exit(0)
        self.module.exit_json(how="well")

    def daemonized(self):
        """As daemons do it: the first process ends, the second answers."""
        if os.fork():
            os._exit(0)
        os.setsid()
        self.module.exit_json(how="as a daemon")

    def executed(self):
        """Becomes another program."""
        os.execv("/bin/sh", ["sh", "-c", "echo '{\"changed\": true, \"how\": \"another program\"}'; exit 5"])

    def reads_stdin(self):
        self.module.exit_json(how=sys.stdin.read())

    def patched(self):
        """Changes a library for whoever comes next in this process."""
        AnsibleModule.exit_json = None
        json.dumps = lambda *_, **__: "broken"
        os.getpid = lambda: 1
        print(RESULT)

    def group_killed(self):
        os.killpg(0, signal.SIGTERM) if os.getpgrp() == os.getpid() else os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)

    def excepthook(self):
        sys.excepthook = lambda *_: print(json.dumps({"changed": True, "how": "by the hook"}))
        raise RuntimeError("hooked")

    def flooded(self):
        sys.stdout.write("x" * (1 << 20))
        sys.exit(0)


def main():
    module = AnsibleModule(argument_spec={"how": {"type": "str"}, "work": {"type": "str"}})
    getattr(Way(module), module.params["how"])()


if __name__ == "__main__":
    main()
