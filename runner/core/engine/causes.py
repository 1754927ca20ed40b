"""Cause of a failed task: a readable sentence, a remedy where one is known, and the place of the expression. Pure.

Modules and Ansible wrap a cause in the steps that led to it. A Status of Kubernetes is in an exception with headers of
HTTP, and an undefined variable in the resolution of arguments. The cause comes first, in one sentence of a limited
length. The rest is in the output of the run. Text of a role's author (`fail`, `assert`) stays as it is.
Read from results of ansible-core 2.18 to 2.22 and kubernetes.core 6; `tests/unit/engine/failures.json` has some of all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.values.objects import mapping, maps

MOST = 200
"""Characters of a cause."""
_READ = 32 * 1024
"""Characters of a message that are read."""
_AUTHORS = frozenset({"fail", "assert", "fail_terminal"})
"""Actions whose message somebody wrote for people."""
_STEPS = re.compile(
    r"(?:Task failed|Module failed|Action failed|Unexpected AnsibleActionFail error"
    r"|Finalization of task args for '[^'\n]*' failed|Error while resolving value for '[^'\n]*'"
    r"|Error rendering template"
    r"|A '[a-z_]+' expression failed|Error while evaluating conditional|Internal error occurred"
    r"|The conditional check '[^\n]*?' failed\. The error was|error while evaluating conditional \([^\n]*?\)"
    r"|The task includes an option with an undefined variable\.|An unhandled exception occurred while [^\n]*?message"
    r"|Unexpected templating type error occurred on \([^\n]*?\)|template error while templating string"
    r"|Failed to connect to the host via ssh|The lookup plugin '[^'\n]*' failed|Ansible[A-Za-z]*(?:Error|Variable)"
    r"|Request failed|Unable to retrieve file contents)(?:[:.] |\n)"
)
"""What Ansible did when something failed, before the cause."""
_AFTER = re.compile(
    r"\nOrigin: |\nSearched in:|\n+The error appears to be in|\n+Original traceback:|\. String: "
    r"|[.,] [Uu]se -vvvvv to see paths|\n  in \"|\. Please read the module documentation"
    r"|\. This often indicates a misspelling|\nIf you are using a module| on the Ansible Controller"
)
"""What follows a cause."""
_DEBUG = re.compile(r"debug\d: |OpenSSH_\d")
_EXIT_CODE = re.compile(r"(?:The command exited with a )?non-zero return code\.?")
_CRASH = re.compile(r"MODULE FAILURE|Module result deserialization failed")
_CONNECTION = re.compile(r"host='([^'\n]+)', port=(\d+)[^\n]{0,500}\[Errno -?\d+\] ([^\"'\n)>]+)")
_URL_ERROR = re.compile(r"<urlopen error (?:\[Errno -?\d+\] )?([^>\n]+)>|(HTTP Error \d+: [^\n]*)")
_WAITED = re.compile(r"even after waiting for (\d+) seconds|Timed out waiting on resource|[Rr]esource \w+ timed out")
_KEY_CHANGED = "REMOTE HOST IDENTIFICATION HAS CHANGED"
ANOTHER_KEY = "the host presents another key than the known one"
FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{1,100}")
_BECOME = re.compile(r">>> Standard Error\s+([^\n]+)")
_GO_TYPE = re.compile(r"json: cannot unmarshal (\w+) into Go struct field \w+\.(\S+) of type ([\w.\[\]*]+)")
_GO_TYPES = {"int32": "an integer", "int64": "an integer", "bool": "true or false", "string": "text"}
_GIVEN = {"string": "text", "bool": "true or false", "array": "a list", "object": "a map"}
_OLD_YAML = re.compile(r"^Syntax Error while loading YAML\.\n\s*([^\n.]+)\.?([^\n]*)", re.MULTILINE)
_ORIGIN = re.compile(r"^Origin: (/[^\n]*?)(:\d+)?(?::\d+)?$", re.MULTILINE)
_OLD_ORIGIN = re.compile(r"^The error appears to be in '([^'\n]+)': line (\d+),", re.MULTILINE)
_BROKEN = re.compile(
    r"Conditional result \S+ was derived from value of type "
    r"|\bEmpty conditional expressions are not allowed\."
    r"|\bConditional expressions must be strings\."
)
"""A conditional without a boolean result, which fails since ansible-core 2.19. Earlier versions converted it."""
BROKEN = (
    "ansible-core is stricter with conditionals since 2.19: have the condition give true or false (`x | length > 0`, "
    "`x is defined`, `x | bool`), or let it pass as before 2.19 by `allow_broken_conditionals = true` in the section "
    "[defaults] of ansible.cfg, or by the variable ANSIBLE_ALLOW_BROKEN_CONDITIONALS=true of the operator"
)
"""Roles fail after an upgrade for this reason, and Ansible's message does not name the setting that helps."""
NO_USER = (
    "the user id of this process has no entry in /etc/passwd: let the pod run with the image's own user id "
    "(securityContext.runAsUser), or add an entry for this one to the image"
)
_REMEDIES: Sequence[tuple[re.Pattern[str], str]] = (
    (_BROKEN, BROKEN),
    (re.compile(r"No user exists for uid \d+|you don't exist, go away", re.IGNORECASE), NO_USER),
    (re.compile(r"exceeded quota: ([^\s,]+)"), "raise the ResourceQuota {0}, or request less"),
    (re.compile(r"failed calling webhook \"([^\"]+)\""), "check the service of the webhook {0}"),
    (re.compile(r"^namespaces \"[^\"]+\" not found"), "create the namespace first"),
    (re.compile(r"because it is being terminated"), "wait until the namespace is gone, and create it again"),
    (re.compile(r"^Apply failed with \d+ conflict"), "leave the fields out, or take them over with force_conflicts"),
    (re.compile(r"the object has been modified"), "remove resourceVersion from the definition, or run again"),
    (re.compile(r"field is immutable"), "delete the object to create it anew, or keep the old value"),
    (re.compile(r"^Unauthorized$"), "the token is invalid or has expired"),
    (re.compile(r"^No kind "), "install its CRD first, or correct apiVersion and kind"),
    (
        re.compile(r"^(?:Attempt|Attempting) to (?:use undecryptable|decrypt)"),
        "give the vault password to the operator",
    ),
    (re.compile(r"Python library \(([^)\n]+)\)"), "install {0} in the image"),
    (
        re.compile(
            r"No filter named|Could not load \"|[Ll]ookup plugin \S+ (?:was )?not found|couldn't resolve module/action"
        ),
        "check its name, and that its collection is in requirements.yml",
    ),
    (re.compile(r"[Tt]abs are usually invalid|tab character"), "indent with spaces instead of tabs"),
    (re.compile(r"Colons in unquoted values|unhashable type: 'AnsibleMapping'"), "quote values that begin with {{{{"),
    (re.compile(r"found unexpected end of stream"), "close the quote or bracket"),
    (re.compile(r"did not find expected key"), "check the indentation"),
    (
        re.compile(r"unexpected '[}%]'|expected token|[Uu]nexpected end of template"),
        "check braces and tags of the template",
    ),
    (re.compile(r"Recursive loop detected|recursion depth exceeded"), "a variable refers to itself"),
    (
        re.compile(r"Could not resolve hostname|Name or service not known"),
        "check the name, and the DNS of the operator",
    ),
    (re.compile(r"Host key verification failed"), "check the host, then its key in known_hosts"),
    (re.compile(r"Permission denied \(|Invalid/incorrect password"), "check user, key and password of the host"),
    (re.compile(r"Connection timed out|No route to host"), "check address, port and firewall"),
    (
        re.compile(r"interpreter \S+ was not found|set the interpreter"),
        "install Python there, or set ansible_python_interpreter",
    ),
    (re.compile(r"unknown user|user \S+ does not exist", re.IGNORECASE), "create the user, or correct become_user"),
    (re.compile(r"^cannot execute "), "install the program in the image, or give its path"),
    (re.compile(r"No space left on device"), "free space, or enlarge the volume"),
)
"""Remedies of known causes, as ends of sentences. `{0}` is the first group of the pattern."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a task failed."""

    text: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.text.rstrip('.')} ({self.remedy})" if self.remedy else self.text


def of_task(data: Mapping[str, Any], text: str, output: Sequence[str]) -> Cause:
    """Return the cause of a failed task from its message, and from the last lines of its output.

    `data` is that of the event. Empty if neither has a cause.
    """
    action = str(data.get("resolved_action") or data.get("task_action") or "").rpartition(".")[2]
    if action in _AUTHORS and not _BROKEN.search(text):
        assertion = mapping(data.get("res")).get("assertion")
        shown = f"{text}: {assertion}" if text == "Assertion failed" and isinstance(assertion, str) else text
        return Cause(shown.strip())
    result, whole = mapping(data.get("res")), text[:_READ].replace("\r", "")
    special = next((told for read in _SPECIAL if (told := read(whole, result, output))), "")
    sentence = _shortened(special or _with_output(unwrapped(whole), output))
    return Cause(sentence, remedy(sentence) or remedy(whole))


def of_output(lines: Sequence[str]) -> tuple[Cause, str]:
    """Return the cause of an error that ended the run outside of any task, and its place."""
    whole = "\n".join(lines)[:_READ]
    text = re.sub(r"^(?:ERROR[!:]|\[ERROR\]:) ", "", whole)
    if match := _OLD_YAML.search(text):
        text = f"invalid YAML: {match[1]}{match[2]}"
    sentence = _shortened(unwrapped(text))
    return Cause(sentence, remedy(sentence)), origin(whole)


def unwrapped(text: str) -> str:
    """Return the innermost message of a chain of errors, on one line."""
    if status := _status(text):
        return status
    lines = text.splitlines()
    if any(map(_DEBUG.match, lines)):
        text = next((line for line in reversed(lines) if line.strip() and not _DEBUG.match(line)), text)
    text = _AFTER.split(text, maxsplit=1)[0].strip()
    while step := _STEPS.match(text):
        text = text[step.end() :].strip()
    text = " ".join(text.split())
    half = (len(text) - 2) // 2
    return text[:half] if half > 0 and text[:half] == text[half + 2 :] and text[half : half + 2] == ". " else text


def remedy(text: str) -> str:
    """Return what helps against a cause; empty if it is not known."""
    for pattern, sentence in _REMEDIES:
        if match := pattern.search(text):
            return sentence.format(*match.groups())
    return ""


def origin(output: str) -> str:
    """Return the file and line of the innermost expression that Ansible names in its output; empty if it names none."""
    shown = output[:_READ].replace("\r", "")
    if places := _ORIGIN.findall(shown):
        path, line = places[-1]
        return f"{path}{line}"
    places = _OLD_ORIGIN.findall(shown)
    return ":".join(places[-1]) if places else ""


def _shortened(text: str) -> str:
    return text if len(text) <= MOST else f"{text[: MOST - 1].rstrip()}…"


def _with_output(text: str, output: Sequence[str]) -> str:
    more = [line for line in output if line not in text]
    return f"{text.rstrip('.')}: {'; '.join(more)}" if text and more else text or "; ".join(more)


def _status(text: str) -> str:
    """Return the message of a Status of Kubernetes in a text."""
    begin = text.find('{"kind":"Status"')
    if begin < 0:
        return ""
    try:
        status, _ = json.JSONDecoder().raw_decode(text, begin)
    except ValueError:  # cut, or escaped: the message is in it as text
        match = re.search(r'"message":"((?:[^"\\]|\\[^\n])*)', text[begin:])
        return " ".join(match[1].replace('\\"', '"').split()) if match else ""
    message = str(status.get("message") or "")
    details = mapping(status.get("details"))
    fields = [cause for cause in maps(details.get("causes")) if cause.get("field")]
    if status.get("reason") == "Invalid" and fields:
        wrong = "; ".join(f"{cause['field']}: {cause.get('message')}" for cause in fields)
        return f"{details.get('kind')} {details.get('name')} is invalid: {wrong}"
    return _STEPS.sub("", " ".join(message.split()), count=1)


def _of_type(text: str, _result: Mapping[str, Any], _output: Sequence[str]) -> str:
    """Of a field of a manifest with a value of another type."""
    match = _GO_TYPE.search(text)
    if not match:
        return ""
    given, field, kind = match.groups()
    expected = _GO_TYPES.get(kind) or (
        "a list" if kind.startswith("[]") else "a map" if kind.startswith("map") else kind
    )
    return f"invalid manifest: {field} must be {expected}, not {_GIVEN.get(given, f'a {given}')}"


def _of_command(text: str, result: Mapping[str, Any], output: Sequence[str]) -> str:
    """Of a command that failed: the last line that it wrote about it."""
    if not _EXIT_CODE.fullmatch(text.strip()):
        return ""
    code = result.get("rc")
    return f"{'; '.join(output)} (exit code {code})" if output else f"exit code {code}, without a message on stderr"


def _of_program(text: str, result: Mapping[str, Any], _output: Sequence[str]) -> str:
    """Of a program that is missing."""
    command, missing = result.get("cmd"), "No such file or directory: b'" in text
    if not command or not (missing or (text.strip() == "Error executing command." and result.get("rc") == 2)):  # noqa: PLR2004 - ENOENT
        return ""
    words = [str(word) for word in command] if isinstance(command, list) else str(command).split()
    return f"cannot execute {words[0]}: no such program" if words else ""


def _of_crash(text: str, _result: Mapping[str, Any], output: Sequence[str]) -> str:
    """Of a module that ended without a result."""
    if not _CRASH.match(text):
        return ""
    last = "; ".join(output)
    return _of_connection(last, {}, ()) or (f"the module crashed: {last}" if last else "the module gave no result")


def _of_connection(text: str, _result: Mapping[str, Any], _output: Sequence[str]) -> str:
    """Of a server that cannot be reached."""
    match = _CONNECTION.search(text)
    return f"cannot connect to {match[1]}:{match[2]}: {match[3]}" if match else ""


def _of_url(text: str, result: Mapping[str, Any], _output: Sequence[str]) -> str:
    """Of a request of `uri` or `get_url`."""
    url = result.get("url")
    match = _URL_ERROR.search(text) or _URL_ERROR.search(str(result.get("response"))[:_READ])
    return f"{match[1] or match[2]}: {url}" if match and isinstance(url, str) else ""


def _of_kind(text: str, _result: Mapping[str, Any], _output: Sequence[str]) -> str:
    """Of a kind that the API server does not serve."""
    match = re.match(r"Failed to find exact match for (\S+)\.([A-Za-z]\w*) by \[", text)
    return f"No kind {match[2]} in {match[1]}" if match else ""


def _of_wait(text: str, result: Mapping[str, Any], _output: Sequence[str]) -> str:
    """Of a wait of `kubernetes.core` that took too long."""
    match = _WAITED.search(text)
    given, obj = mapping(mapping(result.get("invocation")).get("module_args")), mapping(result.get("result"))
    meta = mapping(obj.get("metadata"))
    kind, name = given.get("kind") or obj.get("kind"), given.get("name") or meta.get("name")
    if not match or not kind:
        return ""
    place = "/".join(str(part) for part in (given.get("namespace") or meta.get("namespace"), name) if part)
    condition = mapping(given.get("wait_condition")).get("type") or "ready"
    seconds = match[1] or given.get("wait_timeout")
    time = f" after {seconds} s" if seconds else " in time"
    conditions = maps(mapping(obj.get("status")).get("conditions"))
    unmet = [held["message"] for held in conditions if held.get("status") == "False" and held.get("message")]
    return ": ".join([f"{kind} {place}".strip() + f" is not {condition}{time}", *map(str, unmet[:1])])


def _of_login(text: str, _result: Mapping[str, Any], _output: Sequence[str]) -> str:
    """Of a host that is another one than before, or that has no such user."""
    if _KEY_CHANGED in text:
        key = FINGERPRINT.search(text)
        return f"Host key verification failed: {ANOTHER_KEY}" + (f" ({key[0]})" if key else "")
    match = _BECOME.search(text)
    return match[1] if match else ""


_SPECIAL: Sequence[Callable[[str, Mapping[str, Any], Sequence[str]], str]] = (
    _of_type,
    _of_command,
    _of_program,
    _of_crash,
    _of_connection,
    _of_url,
    _of_kind,
    _of_wait,
    _of_login,
)
"""Readers of messages that need more than the removal of what surrounds the cause."""
