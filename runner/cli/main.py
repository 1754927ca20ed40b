"""The command `ansible-operator`: its commands, their help and their exit codes.

Exit codes: 0 success, 1 failure at run time, 2 invalid input; `plan` has its own. No other module ends the process.
Packages that implement a command are imported only when the command runs, which keeps `--help` fast.
"""

from __future__ import annotations

import argparse
import difflib
import logging
import os
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from runner import __version__
from runner.cli import logs
from runner.cli import text as cli_text
from runner.config.options import Option
from runner.config.settings import GROUPS, OPTIONS
from runner.errors import ConfigError, OperatorError
from runner.rbac import cli as rbac_cli
from runner.sdk.dev import cli as dev_cli
from runner.sdk.devcluster import cli as devcluster_cli
from runner.sdk.migrate import cli as migrate_cli
from runner.sdk.packaging import cli as packaging_cli
from runner.sdk.preview import cli as plan_cli
from runner.sdk.scaffold import cli as scaffold_cli
from runner.sdk.schema import cli as schema_cli

if TYPE_CHECKING:
    from runner.app.edits import ProjectSources
    from runner.config.settings import Settings
    from runner.watches.watch import LoadedWatches

OK, FAILED, BAD_INPUT = 0, 1, 2
_INTERRUPTED = 130  # 128 + SIGINT, as shells count
_VALIDATE_OPTIONS = ("watches-file", "ansible-roles-path", "ansible-collections-path")
_CONFIGURED = {"run", "validate", "plan"}
"""Commands with flags of `OPTIONS`."""
_HELP_COLUMN = 36


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
        return plan_cli.FAILED if arguments[:1] == ["plan"] else BAD_INPUT
    except OperatorError as error:
        _print_errors(str(error))
        return FAILED


def _dispatch(arguments: list[str]) -> int:
    replacement = cli_text.replacement_of_old_command(arguments)
    if replacement:
        raise ConfigError(replacement)
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    parser, commands = _parser()
    if not arguments:
        parser.print_help()
        return OK
    command = arguments[0]
    if not command.startswith("-") and command not in commands:
        raise ConfigError(f"{_unknown('command', command, commands)}; see `ansible-operator --help`")
    parsed, unknown = parser.parse_known_args(_joined(arguments))
    if unknown:
        see = f"see `ansible-operator {'' if command.startswith('-') else command + ' '}--help`"
        raise ConfigError("\n".join(f"{_unknown_argument(each, command)}; {see}" for each in unknown))
    run: Callable[[argparse.Namespace], int] = parsed.func
    return run(parsed)


class _Parser(argparse.ArgumentParser):
    """Parser that reports errors without the usage."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see `{self.prog} --help`")


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Formatter that keeps the lines of descriptions, and breaks no word at its dashes."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=_HELP_COLUMN)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)


def _parser() -> tuple[argparse.ArgumentParser, list[str]]:
    parser: argparse.ArgumentParser = _Parser(
        prog="ansible-operator",
        usage="ansible-operator COMMAND [flags]",
        description=cli_text.DESCRIPTION,
        epilog=cli_text.EXAMPLES,
        formatter_class=_Formatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", prog="ansible-operator")
    run = _command(commands, "run", _run, "run the operator", cli_text.RUN, cli_text.RUN_EXAMPLES)
    for title, group in GROUPS.items():
        section = run.add_argument_group(title)
        for option in group:
            _add(section, option)
    text = "check a watches file and its roles without a cluster"
    validate = _command(commands, "validate", _validate, text, cli_text.VALIDATE, cli_text.VALIDATE_EXAMPLES)
    for option in OPTIONS:
        if option.flag in _VALIDATE_OPTIONS:
            _add(validate, option)
    validate.add_argument("--strict", action="store_true", help="treat warnings as errors")
    logs.add_commands(commands)
    _command(commands, "version", _version, "show the versions of this program and its main dependencies", "", "")
    scaffold_cli.add_commands(commands)
    generated = schema_cli.add_commands(commands)
    packaging_cli.add_commands(generated)
    rbac_cli.add_commands(generated)
    scaffold_cli.add_generate_commands(generated)
    devcluster_cli.add_commands(commands)
    dev_cli.add_commands(commands)
    migrate_cli.add_commands(commands)
    plan_cli.add_commands(commands, _add)
    return parser, list(commands.choices)


def _command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int], text: str, description: str, examples: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=text,
        usage=f"ansible-operator {name} [flags]",
        description=description or text,
        epilog=examples,
        formatter_class=_Formatter,
        allow_abbrev=False,
    )
    parser.set_defaults(func=run)
    return parser


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


def _unknown_argument(argument: str, command: str) -> str:
    flag = argument.partition("=")[0]
    if not flag.startswith("-"):
        return f"unexpected argument {argument!r} of `{command}`"
    flags = {
        "run": [option.flag for option in OPTIONS],
        "validate": [*_VALIDATE_OPTIONS, "strict"],
        "plan": [*plan_cli.FLAGS, "all", "namespace", "output"],
    }
    return _unknown("flag", flag, [f"--{name}" for name in (*flags.get(command, []), "help", "version")])


def _unknown(what: str, given: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(given, known, n=1)
    return f"unknown {what} {given}" + (f"; did you mean {close[0]}?" if close else "")


def _run(arguments: argparse.Namespace) -> int:
    from runner import log  # noqa: PLC0415 - takes a third of a second, which --help need not wait for
    from runner.config import sources  # noqa: PLC0415 - as above
    from runner.watches import watch as watches  # noqa: PLC0415 - as above

    settings, warnings = sources.load(arguments, os.environ)
    loaded = watches.load_configured(settings, os.environ, Path.cwd())
    encoder: log.Format = "json"
    if settings.log_format == "console" or (settings.log_format == "auto" and sys.stderr.isatty()):
        encoder = "console"
    log.configure(level=logging.getLevelNamesMapping()[settings.log_level.upper()], encoder=encoder)
    kinds = [watch.gvk for watch in loaded.watches]
    from runner.compatibility.start_check import StartCheck  # noqa: PLC0415 - as above

    check = StartCheck(settings.watches_file, settings.search_path(os.environ, Path.cwd()), os.environ)
    from runner.app import app  # noqa: PLC0415 - slow to import, so input is checked first

    for warning in (*warnings, *loaded.warnings, *settings.warnings_for(kinds), *check.warnings()):
        log.get(__name__).warning("Check the configuration", detail=warning)
    return app.run(settings, loaded, _project(settings, loaded))


def _project(settings: Settings, loaded: LoadedWatches) -> ProjectSources:
    """Return the operator's source files, which are watched for edits with `--reload`."""
    from runner.app import edits  # noqa: PLC0415 - as above
    from runner.watches import validation  # noqa: PLC0415 - as above

    if not settings.reload:
        return edits.FixedSources()
    search_path = settings.search_path(os.environ, Path.cwd())
    load = partial(validation.load, settings.watches_file, environ=os.environ, cwd=Path.cwd(), search_path=search_path)
    return edits.WatchedSources(edits.ProjectPaths(settings.watches_file, search_path, Path.cwd(), load), loaded)


def _validate(arguments: argparse.Namespace) -> int:
    from runner.compatibility import core_changes, unsupported  # noqa: PLC0415 - as above
    from runner.config import sources  # noqa: PLC0415 - as above
    from runner.sdk.migrate import image  # noqa: PLC0415 - as above
    from runner.sdk.schema import project, usage  # noqa: PLC0415 - as above
    from runner.watches import validation  # noqa: PLC0415 - as above

    settings, warnings = sources.load(arguments, os.environ)
    copied = image.files(image.dockerfiles(), settings.watches_file)
    search_path = replace(settings.search_path(os.environ, Path.cwd()), image=copied)
    found = validation.validate(settings.watches_file, environ=os.environ, cwd=Path.cwd(), search_path=search_path)
    usage.report(found.watches, Path("config/crd/bases"), cwd=Path.cwd(), places=search_path, problems=found.problems)
    project.report(found.watches, settings.watches_file, cwd=Path.cwd(), problems=found.problems)
    found.problems.warnings += [each.to_problem() for each in unsupported.findings(found)]
    warnings = (*warnings, *core_changes.warnings(found, search_path, os.environ))
    level_of_warnings = "error" if arguments.strict else "warning"
    reported = [(level_of_warnings, f"{level_of_warnings}: {sentence}") for sentence in warnings]
    reported += found.problems.report(strict=arguments.strict)
    lines = [line for _, line in reported]
    levels = Counter(level for level, _ in reported)
    lines.append(
        f"{settings.watches_file}: {_count(len(found.watches), 'watch', 'watches')}, "
        f"{_count(levels['error'], 'error', 'errors')}, {_count(levels['warning'], 'warning', 'warnings')}"
    )
    print("\n".join(lines))
    return BAD_INPUT if levels["error"] else OK


def _version(_: argparse.Namespace) -> int:
    print(f"ansible-operator  {__version__}")
    for distribution in ("ansible-core", "ansible-runner", "kubernetes"):
        print(f"{distribution:<16}  {metadata.version(distribution)}")
    print(f"{'Python':<16}  {'.'.join(map(str, sys.version_info[:3]))}")
    return OK


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _print_errors(message: str) -> None:
    for line in message.splitlines():
        print(f"error: {line}", file=sys.stderr)


def _flush() -> None:
    """Flush standard output. If the reader has closed the pipe (`| head`), discard the rest."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
