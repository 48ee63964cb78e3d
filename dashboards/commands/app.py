"""The command line: the list of commands, exit statuses, and the handling of errors and signals."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterable
from typing import Annotated

import typer

from capture.errors import WiretideError
from dashboards.commands.alerts import alerts
from dashboards.commands.backfill import backfill
from dashboards.commands.capture import capture
from dashboards.commands.checkpoint import checkpoint
from dashboards.commands.columns import columns
from dashboards.commands.compact import compact
from dashboards.commands.compare import compare
from dashboards.commands.dashboards import dashboards
from dashboards.commands.demo import demo
from dashboards.commands.doctor import doctor
from dashboards.commands.explain import explain
from dashboards.commands.generate import generate
from dashboards.commands.init import init
from dashboards.commands.pack import pack
from dashboards.commands.queries import queries
from dashboards.commands.query import query
from dashboards.commands.report import report
from dashboards.commands.run import run
from dashboards.commands.units import units
from dashboards.stop_signals import TERMINATED, forget_interrupted_text, interruptible, redeliver_interrupts
from dashboards.wire_text import escape, escape_lines

OBJECTS_BEFORE_COLLECTION = 200_000
"""Number of new objects after which Python searches for unreachable cycles. With Python's default of 700, the imports
of a query cause hundreds of searches, a tenth of the time of a short query. A micro-batch creates few objects."""

INTERRUPTED, TERMINATED_STATUS = 130, 143
"""Exit status after Ctrl-C and after SIGTERM, as in shells: 128 plus the number of the signal."""

# SIGTERM interrupts an `interruptible` command. `query` and `capture` handle SIGTERM and finish their work.
COMMANDS = (
    query,
    explain,
    interruptible(run),
    interruptible(compare),
    interruptible(report),
    interruptible(generate),
    capture,
    init,
    interruptible(dashboards),
    units,
    interruptible(backfill),
    interruptible(alerts),
    interruptible(demo),
    interruptible(pack),
    checkpoint,
    interruptible(compact),
    columns,
    queries,
    interruptible(doctor),
)


def make_app(commands: Iterable[Callable[..., None]]) -> typer.Typer:
    """Build the command line from functions."""
    # Help is plain text, because importing rich for boxes would double the start-up time.
    app = typer.Typer(
        help="Network monitoring in SQL over packets and flows. `wiretide COMMAND --help` shows the options of a "
        "command.",
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback(invoke_without_command=True)(_root)
    for command in commands:
        app.command()(command)
    return app


def _root(show_version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if show_version:
        from importlib.metadata import version

        print(f"wiretide {version('wiretide')}")
        raise typer.Exit


app = make_app(COMMANDS)
"""The complete command line."""


def main() -> None:
    """Run the command line.

    The exit status is 0 for success, 1 for an error of the input or the run, and 2 for an error in the command line or
    the query. It is 130 after Ctrl-C and 143 after SIGTERM.
    """
    gc.set_threshold(OBJECTS_BEFORE_COLLECTION)
    atexit.register(gc.freeze)  # else Python searches all objects for cycles when it ends: a quarter of a short query
    # Typer inspects all commands of an app, which takes 40 ms. So this app has only the command that is called.
    called = [command for command in COMMANDS if [command.__name__] == sys.argv[1:2]]
    redeliver_interrupts()
    try:
        make_app(called or COMMANDS)()
    except (KeyboardInterrupt, SystemExit) as error:
        # Typer raises SystemExit with the status INTERRUPTED for Ctrl-C, without a message.
        if isinstance(error, SystemExit) and error.code != INTERRUPTED:
            raise
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # all work is stopped: another Ctrl-C must not change the status
        forget_interrupted_text()
        print("wiretide: stopped", file=sys.stderr)
        sys.exit(TERMINATED_STATUS if TERMINATED.is_set() else INTERRUPTED)
    except WiretideError as error:
        sys.exit(_print_error(error, error.status))
    except BrokenPipeError:
        # The reader has closed the pipe, as `| head` does. At exit Python writes again, now to /dev/null without error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:  # a full disk, a port in use
        where = f"{error.filename}: " if error.filename else ""
        sys.exit(_print_error(f"{where}{error.strerror or error}", 1))


def _print_error(error: Exception | str, status: int) -> int:
    """Print an error and return `status`. Only messages with status 2 (queries, pipeline files) have several lines."""
    text = escape_lines(str(error)) if status == 2 else escape(str(error))
    print(f"wiretide: {text}", file=sys.stderr)
    return status
