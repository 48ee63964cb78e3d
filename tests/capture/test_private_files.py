"""Private files: modes under every umask, folders of other users, symbolic links, temporary names.

Real files and real modes. If the tests run as root, they create a folder of another user with chown. Otherwise /
(root's) is the accepted foreign owner, and that one test is skipped.
"""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from capture.private_files import (
    SHARED_FILE_MODE,
    UnsafeFolderError,
    check_private_folder,
    create_temporary,
    make_private_folder,
    open_private,
    open_replacement,
    replace_file,
)
from dashboards.output.writers import open_output


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture(params=[0o000, 0o022, 0o077, 0o277])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_folders_and_files_are_private_under_every_umask(umask: int, tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b" / "c"
    make_private_folder(folder)
    replace_file(folder / "replaced", b"one")
    replace_file(folder / "replaced", b"two", sync=True)
    os.close(open_private(folder / "opened", os.O_RDWR))
    modes = {str(path.relative_to(tmp_path)): mode(path) for path in tmp_path.rglob("*")}
    assert modes == {"a": 0o700, "a/b": 0o700, "a/b/c": 0o700, "a/b/c/replaced": 0o600, "a/b/c/opened": 0o600}
    assert (folder / "replaced").read_bytes() == b"two"


def test_a_file_that_was_open_to_others_becomes_private_and_keeps_its_content(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("kept")
    (tmp_path / "lock").chmod(0o666)
    os.close(open_private(tmp_path / "lock", os.O_RDWR))
    assert (mode(tmp_path / "lock"), (tmp_path / "lock").read_text()) == (0o600, "kept")


def test_a_file_for_users_follows_the_umask(umask: int, tmp_path: Path) -> None:
    with open_replacement(tmp_path / "answer.csv", SHARED_FILE_MODE) as (descriptor, _):
        os.write(descriptor, b"x")
    assert mode(tmp_path / "answer.csv") == 0o666 & ~umask


@pytest.mark.parametrize("open_to", [0o777, 0o1777, 0o775, 0o720, 0o702])
def test_a_folder_that_others_can_write_is_refused_with_its_mode_and_the_remedy(open_to: int, tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    folder.mkdir()
    folder.chmod(open_to)
    expected = f"{folder}: other users can change the files in this folder: got mode {open_to:04o}, expected no write"
    with pytest.raises(UnsafeFolderError, match=re.escape(expected)) as caught:
        make_private_folder(folder)
    assert f"chmod go-w '{folder}'" in str(caught.value)
    folder.chmod(0o755)
    check_private_folder(folder)


def test_a_folder_below_a_sticky_folder_of_everybody_is_accepted(tmp_path: Path) -> None:
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    make_private_folder(shared / "state")
    assert mode(shared / "state") == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir(0o700)
    os.chown(folder, 12345, -1)
    with pytest.raises(UnsafeFolderError, match="got owner 12345, expected user 0 or root"):
        check_private_folder(folder)


def test_a_file_in_the_place_of_a_folder_is_an_error_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(NotADirectoryError):
        make_private_folder(tmp_path / "state")
    with pytest.raises(NotADirectoryError):
        make_private_folder(tmp_path / "state" / "below")


def test_a_planted_symbolic_link_is_never_written_through(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("kept")
    (tmp_path / "lock").symlink_to(victim)
    (tmp_path / "file").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        open_private(tmp_path / "lock", os.O_RDWR | os.O_TRUNC)
    replace_file(tmp_path / "file", b"new")
    assert victim.read_text() == "kept"
    assert not (tmp_path / "file").is_symlink()


def test_temporary_names_are_hidden_and_different_for_one_file_of_one_process(tmp_path: Path) -> None:
    made = [create_temporary(tmp_path / ("x" * 250)) for _ in range(50)]
    for descriptor, _ in made:
        os.close(descriptor)
    names = {part.name for _, part in made}
    assert len(names) == 50
    assert all(name.startswith(".x") and str(os.getpid()) not in name.split(".")[-1] for name in names)


def test_a_block_that_fails_leaves_the_old_content_and_no_temporary_file(tmp_path: Path) -> None:
    replace_file(tmp_path / "file", b"old")

    def write_half() -> None:
        with open_replacement(tmp_path / "file") as (descriptor, _):
            os.write(descriptor, b"half of")
            raise KeyError

    with pytest.raises(KeyError):
        write_half()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"old"


def test_an_answer_follows_the_umask_and_one_that_exists_keeps_its_mode(umask: int, tmp_path: Path) -> None:
    with open_output(tmp_path / "new") as sink:
        sink.write(b"x")
    assert mode(tmp_path / "new") == 0o666 & ~umask
    (tmp_path / "kept").touch()
    (tmp_path / "kept").chmod(0o640)
    with open_output(tmp_path / "kept") as sink:
        sink.write(b"x")
    assert (mode(tmp_path / "kept"), (tmp_path / "kept").stat().st_size) == (0o640, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "new"]
