#!/usr/bin/python
"""Says that it has begun, and never ends, or not before it is told to."""
import os
import signal
import time

from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule(argument_spec={"work": {"type": "path"}, "how": {"type": "str"}})
if module.params["how"] == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.setsid() if os.getpgrp() != os.getpid() else None
with open(module.params["work"] + "/begun.new", "w") as file:
    file.write(str(os.getpid()))
os.rename(module.params["work"] + "/begun.new", module.params["work"] + "/begun")
while module.params["how"] != "patient" or not os.path.exists(module.params["work"] + "/go"):
    time.sleep(0.05 if module.params["how"] == "patient" else 60)
module.exit_json(how="told to")
