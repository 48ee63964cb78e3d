"""Java for Spark: the choice of the runtime, the packages per machine, and the message if there is no runtime.

The runtimes are shell scripts that answer like `java`. So only the marked test starts a JVM, because it uses the real
program.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from highlevel.spark.session import java
from highlevel.spark.session.java import Machine

ROOT = Path(__file__).resolve().parents[4]
DEBIAN_ROOT = Machine(apt=True, brew=False, root=True, sudo=False)
DEBIAN_SUDO = Machine(apt=True, brew=False, root=False, sudo=True)
DEBIAN_USER = Machine(apt=True, brew=False, root=False, sudo=False)
MACOS_USER = Machine(apt=False, brew=True, root=False, sudo=False)
MACOS_ROOT = Machine(apt=False, brew=True, root=True, sudo=False)
BARE = Machine(apt=False, brew=False, root=False, sudo=True)


def runtime(home: Path, version: str, status: int = 0) -> Path:
    """A runtime in `home` whose `java` reports `version`, on standard error as the real one does."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    settings = f"Property settings:\n    java.home = {home}\n    java.specification.version = {version}\n"
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{settings}END\nexit {status}\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize("version", ["17", "21", "25"])
def test_a_runtime_of_version_17_or_newer_will_do(tmp_path: Path, version: str) -> None:
    assert java.read_home(runtime(tmp_path, version)) == tmp_path


@pytest.mark.parametrize("version", ["1.8", "11", "16"])
def test_an_older_runtime_will_not_do(tmp_path: Path, version: str) -> None:
    assert java.read_home(runtime(tmp_path, version)) is None


def test_a_runtime_that_lacks_a_module_of_spark_will_not_do(tmp_path: Path) -> None:
    # Asked for a module it lacks, java ends with status 1.
    assert java.read_home(runtime(tmp_path, "17", status=1)) is None


def test_a_file_that_is_no_program_will_not_do(tmp_path: Path) -> None:
    program = tmp_path / "java"
    program.write_text("not executable")
    assert java.read_home(program) is None


def test_java_home_is_preferred_to_path_to_downloads_to_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "DOWNLOAD_FOLDER", tmp_path / "downloads")
    monkeypatch.setattr(java, "SYSTEM_PATTERNS", (f"{tmp_path}/jvm/*",))
    named = runtime(tmp_path / "named", "17")
    on_path = runtime(tmp_path / "path", "17")
    downloaded = runtime(tmp_path / "downloads" / "jdk-17.0.9", "17")
    bundled = runtime(tmp_path / "downloads" / "mac" / "Contents" / "Home", "17")
    of_system = runtime(tmp_path / "jvm" / "java-17", "17")
    environ = {"JAVA_HOME": str(tmp_path / "named"), "PATH": str(on_path.parent)}
    assert [program for program in java.find_candidates(environ) if program.exists()] == [
        named,
        on_path,
        downloaded,
        bundled,
        of_system,
    ]


def test_an_old_runtime_in_front_does_not_hide_a_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime(tmp_path / "old", "11")
    new = runtime(tmp_path / "new", "21")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(new.parent), prepend=os.pathsep)
    assert java.require_java() == tmp_path / "new"
    assert os.environ["JAVA_HOME"] == str(tmp_path / "new")


def test_root_installs_with_apt_and_refreshes_its_lists_once() -> None:
    plans = java.list_install_ways(DEBIAN_ROOT)
    assert [command[-1] for plan in plans for command in plan] == ["update", *java.APT_PACKAGES]
    assert all(command[0] == "env" for plan in plans for command in plan)


def test_apt_goes_through_a_sudo_that_cannot_ask() -> None:
    assert {command[:2] for plan in java.list_install_ways(DEBIAN_SUDO) for command in plan} == {("sudo", "-n")}


def test_apt_installs_without_asking_questions() -> None:
    installs = [command for plan in java.list_install_ways(DEBIAN_ROOT) for command in plan if "install" in command]
    assert all({"-y", "DEBIAN_FRONTEND=noninteractive"} <= set(command) for command in installs)


def test_homebrew_installs_as_a_user() -> None:
    assert java.list_install_ways(MACOS_USER) == [[("brew", "install", "openjdk@17")]]


@pytest.mark.parametrize("machine", [DEBIAN_USER, MACOS_ROOT, BARE])
def test_nothing_of_the_system_is_touched_where_that_is_not_allowed(machine: Machine) -> None:
    assert java.list_install_ways(machine) == []


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (DEBIAN_USER, "sudo apt-get install openjdk-17-jre-headless"),
        (MACOS_USER, "brew install openjdk@17"),
        (BARE, "set JAVA_HOME"),
    ],
)
def test_the_advice_is_what_to_type_on_that_machine(machine: Machine, words: str) -> None:
    assert words in java.give_install_advice(machine)


def test_without_java_the_message_is_one_line_with_what_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = runtime(tmp_path / "old", "11")
    monkeypatch.setattr(java, "DOWNLOAD_FOLDER", tmp_path / "none")
    monkeypatch.setattr(java, "SYSTEM_PATTERNS", ())
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(java.JavaMissingError) as caught:
        java.require_java()
    message = str(caught.value)
    assert str(old) in message
    assert "17 or newer" in message
    assert "\n" not in message


@pytest.mark.spark
def test_the_command_names_a_real_runtime() -> None:
    command = [sys.executable, "-m", "highlevel.spark.session.java"]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    home = Path(answer.stdout.removeprefix("java: ").strip())
    assert (home / "bin" / "java").exists()
