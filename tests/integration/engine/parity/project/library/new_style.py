#!/usr/bin/python
"""An ordinary module: says what it was given and what it is."""

import os
import sys

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.text.converters import to_text

DOCUMENTATION = """
module: new_style
short_description: an ordinary module
description: [text]
options:
  text: {type: str, default: nothing}
author: [nobody]
"""


class Helper:
    """Has a module name."""


def main():
    module = AnsibleModule(
        argument_spec={
            "text": {"type": "str", "default": "nothing", "aliases": ["words"]},
            "number": {"type": "int"},
            "flag": {"type": "bool"},
            "items": {"type": "list", "elements": "dict", "options": {"a": {"type": "int", "required": True}}},
            "password": {"type": "str", "no_log": True},
            "choice": {"type": "str", "choices": ["one", "two"]},
            "old": {"type": "str", "removed_in_version": "9.0", "removed_from_collection": "x.y"},
            "path": {"type": "path"},
            "raw": {"type": "raw"},
            "json": {"type": "json"},
            "size": {"type": "bytes"},
            "fallback": {"type": "str"},
            "fail": {"type": "str"},
        },
        mutually_exclusive=[["flag", "choice"]],
        required_if=[["choice", "two", ["number"]]],
        supports_check_mode=True,
    )
    if module.params["fail"]:
        module.fail_json(msg=module.params["fail"], reason=3)
    if module.params["text"] == "warn":
        module.warn("be warned")
        module.deprecate("old things", version="9.9", collection_name="x.y")
        module.deprecate("older things", version="9.8")
        module.debug("debugging")
        module.log("logging")
    rc, out, err = module.run_command(["sh", "-c", "echo out; echo err >&2; exit 3"], environ_update={"X": "y"})
    module.exit_json(
        changed=not module.check_mode,
        params=module.params,
        check_mode=module.check_mode,
        diff={"before": "a\n", "after": "b\n"} if module._diff else {},
        command=[rc, out, err],
        name=__name__,
        of_class=Helper.__module__,
        main_has=hasattr(sys.modules["__main__"], "Helper"),
        spec_name=getattr(__spec__, "name", None),
        file=os.path.basename(__file__),
        argv=[os.path.basename(argument) for argument in sys.argv],
        utils=os.path.basename(sys.modules["ansible.module_utils.basic"].__file__),
        tmpdir=os.path.dirname(module.tmpdir).split("ansible-tmp")[0],
        ansible_facts={"of_module": to_text(module.params["text"])},
        invoked=module._name,
        version=module.ansible_version,
        verbosity=module._verbosity,
        debug=module._debug,
        keep=module._keep_remote_files,
        selinux=module._selinux_special_fs,
        shell=module._shell,
        target_encoding=sys.stdout.encoding,
    )


if __name__ == "__main__":
    main()
