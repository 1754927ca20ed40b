"""The command `ansible-operator`: its commands, their help and their exit codes.

Exit codes: 0 success, 1 failure at run time, 2 invalid input; `plan` has its own. No other module ends the process.
Packages that implement a command are imported only when the command runs, which keeps `--help` fast.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

from runner import __version__
from runner.base.config import commands
from runner.base.config.options import Option, removed_flags
from runner.base.config.settings import GROUPS, OPTIONS
from runner.cli import logs
from runner.cli import text as cli_text
from runner.features.rollout import commands as rollout
from runner.values.errors import ConfigError, OperatorError, meant

OK, FAILED, BAD_INPUT = 0, 1, 2
_INTERRUPTED = 130  # 128 + SIGINT, as shells count
_CONFIGURED = {"run", "validate", "plan"}
"""Commands with flags of `OPTIONS`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line (default: `sys.argv`) and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _run_command(arguments)
    except KeyboardInterrupt:
        code = _INTERRUPTED
    _flush()
    return code


def _run_command(arguments: list[str]) -> int:
    try:
        return _dispatch(arguments)
    except SystemExit as end:  # argparse exits after --help and --version
        return end.code if isinstance(end.code, int) else OK
    except ConfigError as error:
        _print_errors(str(error))
        return FAILED if arguments[:1] == ["plan"] else BAD_INPUT
    except OperatorError as error:
        _print_errors(str(error))
        return FAILED
    except OSError as error:
        # A file of the user that a command for authors cannot use. Other errors are faults of this program.
        if arguments[:1] == ["run"] or not isinstance(error.filename, str | os.PathLike):
            raise
        _print_errors(f"cannot read or write {error.filename}: {error.strerror}")
        return FAILED


def _dispatch(arguments: list[str]) -> int:
    replacement = cli_text.replacement_of_old_command(arguments)
    if replacement:
        raise ConfigError(replacement)
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    parser, known = _parser(with_authors=arguments[:1] != ["run"])  # which would take a tenth of a second to import
    if not arguments:
        parser.print_help()
        return OK
    command = arguments[0]
    if not command.startswith("-") and command not in known:
        absent = "" if has_sdk() else " (the image of an operator has no commands for authors)"
        raise ConfigError(f"{_unknown('command', command, list(known))}{absent}; see `ansible-operator --help`")
    joined = _joined(arguments)
    removed = removed_flags(joined) if command in _CONFIGURED else []
    if removed:
        raise ConfigError("\n".join(removed))
    parsed, unknown = parser.parse_known_args(joined)
    if unknown:
        used: argparse.ArgumentParser = getattr(parsed, "parser", parser)
        raise ConfigError("\n".join(f"{_unknown_argument(argument, used)}; {_see(used)}" for argument in unknown))
    run: Callable[[argparse.Namespace], int] = parsed.func
    return run(parsed)


class _Parser(argparse.ArgumentParser):
    """Parser that reports errors without the usage."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; {_see(self)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Name the choices as words, also those of an enumeration."""
        choices = [str(choice) for choice in action.choices or ()]
        if choices and value not in choices:
            message = f"invalid choice: {value!r} (choose from {', '.join(choices)}){meant(value, choices)}"
            raise argparse.ArgumentError(action, message)


def has_sdk() -> bool:
    """Return False in the image of an operator, which has no commands for authors."""
    return find_spec("runner.sdk") is not None


@cache
def _parser(*, with_authors: bool = True) -> tuple[argparse.ArgumentParser, Mapping[str, str]]:
    """Return the parser, with or without the commands for authors, and the summary of each command."""
    parser: argparse.ArgumentParser = _Parser(
        prog="ansible-operator",
        usage="ansible-operator COMMAND [flags]",
        description=cli_text.DESCRIPTION,
        formatter_class=commands.Formatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    # The epilog lists the commands under headings.
    group = parser.add_subparsers(metavar="COMMAND", prog=parser.prog, help=argparse.SUPPRESS)
    run = commands.add(group, "run", _run, "run the operator", cli_text.RUN, cli_text.RUN_EXAMPLES)
    for title, options in GROUPS.items():
        section = run.add_argument_group(title)
        for option in options:
            _add(section, option)
    logs.add_commands(group)
    rollout.add_commands(group)
    text = "show the versions of this program and its main dependencies"
    commands.add(group, "version", _version, text, cli_text.VERSION, ("",))
    if with_authors and has_sdk():
        from runner.cli import authors  # noqa: PLC0415 - the image of an operator does not have what it imports

        authors.add_commands(group, _add)
    helps = {action.dest: action.help or "" for action in group._choices_actions}  # noqa: SLF001 - no public list of them
    parser.epilog = cli_text.overview(helps)
    return parser, helps


def _add(section: Any, option: Option) -> None:
    """Add an option. Its values stay text, which `sources` parses."""
    form: dict[str, Any] = {"metavar": option.metavar}
    if option.is_boolean:
        form = {"metavar": "true|false", "nargs": "?", "const": "true"}
    section.add_argument(f"--{option.flag}", dest=option.dest, action="append", help=cli_text.help_of(option), **form)


def _joined(arguments: list[str]) -> list[str]:
    """Join `--flag value` to `--flag=value`, so that a value can begin with a dash (`--ansible-args --diff`)."""
    valued = {f"--{option.flag}" for option in OPTIONS if not option.is_boolean}
    joined: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        value = next(rest, None) if argument in valued and arguments[0] in _CONFIGURED else None
        joined.append(argument if value is None else f"{argument}={value}")
    return joined


def _unknown_argument(argument: str, parser: argparse.ArgumentParser) -> str:
    flag = argument.partition("=")[0]
    if not flag.startswith("-"):
        return f"unexpected argument {argument!r} of `{parser.prog.removeprefix('ansible-operator ')}`"
    return _unknown("flag", flag, [*parser._option_string_actions, "--version"])  # noqa: SLF001 - no public list


def _unknown(what: str, word: str, known: Sequence[str]) -> str:
    return f"unknown {what} {word}{meant(word, known)}"


def _see(parser: argparse.ArgumentParser) -> str:
    return f"see `{parser.prog} --help`"


def _run(arguments: argparse.Namespace) -> int:
    from runner.app.features import FEATURE_FIELDS  # noqa: PLC0415 - as above
    from runner.base import log  # noqa: PLC0415 - takes a third of a second, which --help need not wait for
    from runner.base.config import sources  # noqa: PLC0415 - as above
    from runner.core.watches import watch as watches  # noqa: PLC0415 - as above

    settings, warnings = sources.load(arguments, os.environ)
    loaded = watches.load_configured(settings, os.environ, Path.cwd(), FEATURE_FIELDS)
    encoder: log.Format = "json"
    if settings.log_format == "console" or (settings.log_format == "auto" and sys.stderr.isatty()):
        encoder = "console"
    log.configure(level=logging.getLevelNamesMapping()[settings.log_level.upper()], encoder=encoder)
    kinds = [watch.gvk for watch in loaded.watches]
    from runner.app import start  # noqa: PLC0415 - slow to import, so input is checked first

    for warning in (*warnings, *loaded.warnings, *settings.warnings_for(kinds)):
        log.get(__name__).warning("Check the configuration", detail=warning)
    return start.run(settings, loaded)


def _version(_: argparse.Namespace) -> int:
    print(f"ansible-operator  {__version__}")
    for distribution in ("ansible-core", "ansible-runner", "kubernetes"):
        print(f"{distribution:<16}  {metadata.version(distribution)}")
    print(f"{'Python':<16}  {'.'.join(map(str, sys.version_info[:3]))}")
    from runner.app.engines import PLUGINS  # noqa: PLC0415 - as above

    for problem in filter(None, (plugin.problem() for plugin in PLUGINS)):
        print(f"warning: {problem}", file=sys.stderr)
    return OK


def _print_errors(message: str) -> None:
    for line in message.splitlines():
        print(f"error: {line}", file=sys.stderr)


def _flush() -> None:
    """Flush standard output. If the reader has closed the pipe (`| head`), discard the rest."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
