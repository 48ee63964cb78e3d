"""The commands that run for months use an allocator that returns freed memory to the system.

Finds: a command that imports pyarrow before it chooses the allocator, and tasks that inherit the choice.
"""

import os
import subprocess
import sys

import pytest

from dashboards.commands.run import ALLOCATOR

COMMAND = f"""
import os, sys
import wiretide
sys.argv = ["wiretide", *sys.argv[1:]]
try:
    wiretide.main()
except SystemExit as end:
    print(end.code)
import pyarrow
print(pyarrow.default_memory_pool().backend_name, os.environ.get({ALLOCATOR!r}))
"""


@pytest.mark.parametrize(
    "arguments, status", [(["run", "missing.toml"], "1"), (["demo", "--seconds", "-1"], "2")], ids=["run", "demo"]
)
@pytest.mark.parametrize("chosen, used", [(None, "system None"), ("mimalloc", "mimalloc mimalloc")])
def test_a_command_uses_the_allocator_of_the_system_or_that_of_the_user(
    arguments: list[str], status: str, chosen: str | None, used: str
) -> None:
    environment = {name: value for name, value in os.environ.items() if name != ALLOCATOR}
    if chosen is not None:
        environment[ALLOCATOR] = chosen
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *arguments], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [status, used], done.stderr
