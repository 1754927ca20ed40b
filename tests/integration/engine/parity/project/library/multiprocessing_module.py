#!/usr/bin/python
import multiprocessing
import pickle
import subprocess
import sys
import threading

from ansible.module_utils.basic import AnsibleModule


class Thing:
    def __init__(self, value):
        self.value = value


def double(thing):
    return Thing(thing.value * 2)


def main():
    module = AnsibleModule(argument_spec={"method": {"type": "str"}})
    method = module.params["method"]
    if method == "pickle":
        found = pickle.loads(pickle.dumps(Thing(2))).value
    elif method == "thread":
        out = []
        threads = [threading.Thread(target=out.append, args=[number]) for number in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        found = sorted(out)
    elif method == "subprocess":
        found = subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True, text=True, check=True).stdout
    else:
        with multiprocessing.get_context(method).Pool(2) as pool:
            found = [thing.value for thing in pool.map(double, [Thing(1), Thing(2)])]
    module.exit_json(found=found, alive=threading.active_count(), main=threading.current_thread() is threading.main_thread())


if __name__ == "__main__":
    main()
