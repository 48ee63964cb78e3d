"""The command line: the list of commands, exit statuses, and the handling of errors and signals."""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import select
import signal
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, get_args, get_origin

from capture.errors import WiretideError
from dashboards.command_options import Option, Parameter, UsageError, parse_plain
from dashboards.stop_signals import TERMINATED, forget_interrupted_text, interruptible, redeliver_interrupts
from dashboards.wire_text import escape, escape_lines

if TYPE_CHECKING:
    import typer

INTERRUPTED, TERMINATED_STATUS = 130, 143
"""Exit status after Ctrl-C and after SIGTERM, as in shells: 128 plus the number of the signal."""

COMMANDS = (
    *("query", "explain", "run", "compare", "report", "generate", "capture", "init", "dashboards", "units"),
    *("manifests", "backfill", "alerts", "demo", "pack", "checkpoint", "compact", "columns", "queries", "translate"),
    "doctor",
)
"""The commands in the order of `wiretide --help`. Command NAME is the function NAME of `dashboards.commands.NAME`."""

INTERRUPTIBLE = {
    *("run", "compare", "report", "generate", "dashboards", "backfill", "alerts", "demo", "pack", "compact", "doctor"),
}
"""Commands that SIGTERM interrupts. The other commands with long work, `query` and `capture`, handle SIGTERM and finish
their work.
"""


def load_command(name: str) -> Callable[..., None]:
    """Import the module of one command, because the import of all commands takes 4 ms. Return the command."""
    command: Callable[..., None] = getattr(importlib.import_module(f"dashboards.commands.{name}"), name)
    return interruptible(command) if name in INTERRUPTIBLE else command


def make_app(commands: Iterable[str] = COMMANDS, error: UsageError | None = None) -> typer.Typer:
    """Build the command line with these commands, by default all.

    If `error` is given, the commands print this error below their usage and do nothing else.
    """
    import typer

    # Help is plain text, because importing rich for boxes would double the start-up time.
    app = typer.Typer(
        help="Network monitoring in SQL over packets and flows. `wiretide COMMAND --help` shows the options of a "
        "command.",
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback(invoke_without_command=True)(declare_for_typer(_root))
    for command in commands:
        app.command()(declare_for_typer(load_command(command), error))
    return app


def _root(show_version: Annotated[bool, Option("--version", help="Print the version and exit.")] = False) -> None:
    if show_version:
        from importlib.metadata import version

        print(f"wiretide {version('wiretide')}")
        sys.exit()


def declare_for_typer(command: Callable[..., None], error: UsageError | None = None) -> Callable[..., None]:
    """Return a command whose parameters are declared for typer. If `error` is given, the command only raises it."""
    import typer

    @functools.wraps(command)
    def run(**arguments: object) -> None:
        try:
            if error is not None:
                raise error
            command(**arguments)
        except UsageError as wrong:
            raise typer.BadParameter(str(wrong)) from wrong

    def declare(parameter: inspect.Parameter) -> inspect.Parameter:
        if get_origin(parameter.annotation) is not Annotated:
            return parameter
        of_type, declared = get_args(parameter.annotation)
        assert isinstance(declared, Parameter)
        make = typer.Option if isinstance(declared, Option) else typer.Argument
        return parameter.replace(annotation=Annotated[of_type, make(*declared.names, **declared.settings)])

    signature = inspect.signature(command, eval_str=True)
    parameters = [declare(parameter) for parameter in signature.parameters.values()]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # typer reads it
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def run_command_line() -> None:
    """Run the command line. `wiretide.main` lists the exit statuses."""
    # Typer inspects all commands of an app, which takes 40 ms. So this app contains only the called command.
    called = [command for command in COMMANDS if [command] == sys.argv[1:2]]
    redeliver_interrupts()
    if sys.stderr is None:  # the shell closed it, 2>&-: print would write messages to standard output
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115
    try:
        if not (called and _run_plain(called[0])):
            make_app(called or COMMANDS)()
        if sys.stdout is not None:
            sys.stdout.flush()  # if the pipe is closed, the error is raised here and not when Python ends
    except (KeyboardInterrupt, SystemExit) as error:
        # Typer raises SystemExit with the status 1 for a closed pipe, and INTERRUPTED for Ctrl-C, without a message.
        if isinstance(error, SystemExit) and isinstance(error.__context__, BrokenPipeError):
            sys.exit(_end_broken_pipe(error.__context__))
        if isinstance(error, SystemExit) and error.code != INTERRUPTED:
            if not error.code:
                _flush_output()
            raise
        signal.signal(
            signal.SIGINT, signal.SIG_IGN
        )  # all work has stopped: another Ctrl-C must not change the exit status
        forget_interrupted_text()
        print("wiretide: stopped", file=sys.stderr)
        sys.exit(TERMINATED_STATUS if TERMINATED.is_set() else INTERRUPTED)
    except WiretideError as error:
        sys.exit(_print_error(error, error.status))
    except BrokenPipeError as error:
        sys.exit(_end_broken_pipe(error))
    except OSError as error:  # a full disk, a port in use
        sys.exit(_print_os_error(error))


def _flush_output() -> None:
    """Write the rest of the output, such as the text of `--help`. Its reader may have gone."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError as error:
        sys.exit(_end_broken_pipe(error))


def _end_broken_pipe(error: BrokenPipeError) -> int:
    """Return the exit status after a write to a pipe that its reader has closed.

    For standard output (`| head`) this is 0 without a message, because its reader needs no more output. For other
    pipes and connections it is an error.
    """
    poll = select.poll()
    poll.register(1, 0)
    if not any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0)):
        return _print_os_error(error)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python writes again when it ends
    return 0


def _print_os_error(error: OSError) -> int:
    where = f"{error.filename}: " if error.filename else ""
    return _print_error(f"{where}{error.strerror or error}", 1)


def _run_plain(name: str) -> bool:
    """Run a command without typer, and return True. Return False without running it if typer must parse its words."""
    command = load_command(name)
    arguments = parse_plain(command, sys.argv[2:])
    if arguments is None:
        return False
    try:
        command(**arguments)
    except UsageError as error:
        make_app([name], error)()
    return True


def _print_error(error: Exception | str, status: int) -> int:
    """Print an error and return `status`. Only messages with status 2 (queries, pipeline files) have several lines."""
    text = escape_lines(str(error)) if status == 2 else escape(str(error))
    print(f"wiretide: {text}", file=sys.stderr)
    return status
