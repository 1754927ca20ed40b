"""Module `osdk_metric`: creates or updates one of the operator's Prometheus metrics."""

from __future__ import annotations

DOCUMENTATION = r"""
module: osdk_metric
short_description: Creates or updates a Prometheus metric of the operator
version_added: "1.0.0"
author: "Contributors to ansible-operator-runner"
description:
  - Creates a metric with the given name, unless it exists, and updates it. The operator serves it together with its
    own metrics.
  - The type of a metric cannot change; see U(https://prometheus.io/docs/concepts/metric_types/).
  - 'The request is a C(POST) of a JSON object with C(name), C(description), and one of C(counter), C(gauge),
    C(histogram) and C(summary). The last one contains the given suboptions and can be empty. Example:
    C({"name": "backups_total", "description": "Backups made", "counter": {"increment": true}}).
    A response other than 200 fails the task.'
options:
  name:
    description: The metric's name.
    type: str
    required: true
  description:
    description: The metric's help text.
    type: str
    required: true
  address:
    description: URL to which the metric is posted. Also E(OSDK_METRICS_ADDRESS).
    type: str
    default: http://localhost:5050/metrics
  counter:
    description: A value that only increases. If empty, the counter is created and keeps its value.
    type: dict
    suboptions:
      increment:
        description: Add one. Overrides O(counter.add).
        type: bool
      add:
        description: Value to add; not negative.
        type: float
  gauge:
    description:
      - A value that increases and decreases. If empty, the gauge is created and keeps its value.
      - Of several suboptions, the first of these counts -
        O(gauge.increment), O(gauge.decrement), O(gauge.add), O(gauge.subtract), O(gauge.set),
        O(gauge.set_to_current_time).
    type: dict
    suboptions:
      set:
        description: The new value.
        type: float
      increment:
        description: Add one.
        type: bool
      decrement:
        description: Subtract one.
        type: bool
      add:
        description: Value to add.
        type: float
      subtract:
        description: Value to subtract.
        type: float
      set_to_current_time:
        description: Set the current time, in seconds since 1970.
        type: bool
  histogram:
    description: Observations, counted in buckets. If empty, the histogram is created.
    type: dict
    suboptions:
      observe:
        description: An observation to count.
        type: float
  summary:
    description: Observations, counted and added. If empty, the summary is created.
    type: dict
    suboptions:
      observe:
        description: An observation to count.
        type: float
attributes:
  check_mode:
    support: full
    description: Nothing is sent in check mode.
  diff_mode:
    support: none
    description: The operator does not return the previous value of the metric.
"""

EXAMPLES = r"""
- name: Count a backup
  operator_sdk.util.osdk_metric:
    name: backups_total
    description: Backups made since the operator started
    counter:
      increment: true

- name: Say when the last backup was made
  operator_sdk.util.osdk_metric:
    name: last_backup_timestamp_seconds
    description: When the last backup was made
    gauge:
      set_to_current_time: true

- name: Observe how much was backed up
  operator_sdk.util.osdk_metric:
    name: backup_size_bytes
    description: Size of the backups
    histogram:
      observe: "{{ archive.stat.size }}"
"""

RETURN = r"""
status_code:
  description: The answer's HTTP status; V(-1) when there was no answer.
  returned: failure
  type: int
  sample: 400
"""

import json
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import SplitResult, urlsplit, urlunsplit

from ansible.module_utils.basic import AnsibleModule, env_fallback
from ansible.module_utils.urls import fetch_url

_TYPES = ("counter", "gauge", "histogram", "summary")
_ON_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")
_TIMEOUT_SECONDS = 10
_HEADERS = {"Content-Type": "application/json"}
_OK = 200
_NO_ANSWER = -1


def main() -> None:
    """Post the metric to the operator."""
    module = AnsibleModule(
        argument_spec=_options(),
        mutually_exclusive=[_TYPES],
        required_one_of=[_TYPES],
        supports_check_mode=True,
    )
    metric = {key: module.params[key] for key in ("name", "description")}
    for kind in _TYPES:
        if module.params[kind] is not None:
            metric[kind] = {key: value for key, value in module.params[kind].items() if value is not None}
    if not module.check_mode:
        _post(module, metric)
    module.exit_json(changed=True)


def _options() -> dict[str, Any]:
    numbers = {name: {"type": "float"} for name in ("add", "subtract", "set", "observe")}
    switches = {name: {"type": "bool"} for name in ("increment", "decrement", "set_to_current_time")}
    known = numbers | switches
    suboptions = {
        "counter": ("increment", "add"),
        "gauge": ("set", "increment", "decrement", "add", "subtract", "set_to_current_time"),
        "histogram": ("observe",),
        "summary": ("observe",),
    }
    return {
        "name": {"type": "str", "required": True},
        "description": {"type": "str", "required": True},
        "address": {
            "type": "str",
            "default": "http://localhost:5050/metrics",
            "fallback": (env_fallback, ["OSDK_METRICS_ADDRESS"]),
        },
        **{kind: {"type": "dict", "options": {key: known[key] for key in keys}} for kind, keys in suboptions.items()},
    }


def _post(module: AnsibleModule, metric: dict[str, Any]) -> None:
    address, document = module.params["address"], json.dumps(metric)
    url = urlsplit(address)
    here = url.hostname in _ON_THIS_MACHINE
    if here and url.scheme == "http" and url.username is None:
        status, text = _post_here(url, document)
    else:
        # A proxy of the environment cannot reach this machine's loopback.
        status, text = _fetch(module, document, use_proxy=not here)
    if status != _OK:
        msg = f"{address} did not take the metric {metric['name']}: {text}"
        module.fail_json(msg=msg, status_code=status)


def _post_here(url: SplitResult, document: str) -> tuple[int, str]:
    """Post to this machine; return the status and the answer's text.

    `fetch_url` loads all certificate authorities of the machine before it makes any request, which takes far longer.
    """
    target = urlunsplit(("", "", url.path or "/", url.query, ""))
    try:
        with closing(HTTPConnection(url.hostname or "", url.port, timeout=_TIMEOUT_SECONDS)) as connection:
            connection.request("POST", target, document, {**_HEADERS, "Connection": "close"})
            response = connection.getresponse()
            return response.status, response.read().decode(errors="replace").strip() or response.reason
    except (OSError, HTTPException, ValueError) as error:
        return _NO_ANSWER, f"Request failed: {error}"


def _fetch(module: AnsibleModule, document: str, *, use_proxy: bool) -> tuple[int, str]:
    """Post to another machine, or with TLS or a password; return the status and the answer's text."""
    response, info = fetch_url(
        module,
        module.params["address"],
        method="POST",
        data=document,
        headers=_HEADERS,
        timeout=_TIMEOUT_SECONDS,
        use_proxy=use_proxy,
    )
    body = info.get("body") or (response.read() if response else b"")
    text = body.decode(errors="replace") if isinstance(body, bytes) else body
    return int(info["status"]), text.strip() or info["msg"]


if __name__ == "__main__":
    main()
