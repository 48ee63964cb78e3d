"""Files in changed folders, against a walk over all files. The test detects a change that is not found.

Random operations on a tree; the times of some folders are set to the past, as if they had not changed for long.
"""

import os
from pathlib import Path
from random import Random

import pytest

from highlevel.spark.remote.changed_files import find_changed_files


def read_all(root: Path) -> dict[Path, str]:
    return {path: path.read_text() for path in root.rglob("*") if path.is_file() and path.name[0] != "."}


def settle(folder: Path, seconds: int) -> None:
    os.utime(folder, (seconds, seconds))


@pytest.mark.parametrize("seed", range(20))
def test_all_changes_are_found(seed: int, tmp_path: Path) -> None:
    random, known, copy, unchanged_folders = Random(seed), {}, {}, 0
    root = tmp_path / "output"
    folders = [root, *(root / name for name in ("a", "b", "a/c", "a/c/d", ".e"))]
    for step in range(30):
        for _ in range(random.randrange(3)):
            folder = random.choice(folders)
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / random.choice(("1", "2", "3", ".4"))
            if path.exists() and random.random() < 0.4:
                path.unlink()
            else:
                path.with_name("new").write_text(str(step))
                path.with_name("new").rename(path)
            if folder != root and random.random() < 0.2:
                folder.rename(tmp_path / f"moved-{random.random()}")
        files, listings = find_changed_files(tmp_path, "output", known)
        unchanged = {name for name, listing in listings.items() if listing is known.get(name)}
        unchanged_folders += len(unchanged)
        kept = {path: text for path, text in copy.items() if path.parent.relative_to(tmp_path).as_posix() in unchanged}
        assert not kept.keys() & {*files}
        copy = kept | {path: path.read_text() for path in files}
        assert copy == read_all(root)
        known = listings
        for folder in folders:
            if folder.exists() and random.random() < 0.7:
                settle(folder, random.randrange(10**9))
    assert unchanged_folders > 5


def test_a_folder_that_has_just_changed_is_listed_again(tmp_path: Path) -> None:
    (tmp_path / "output").mkdir()
    (tmp_path / "output" / "1").touch()
    known = {}
    for _ in range(3):
        files, known = find_changed_files(tmp_path, "output", known)
        assert files == [tmp_path / "output" / "1"]
    settle(tmp_path / "output", 1)
    counts = []
    for _ in range(2):
        files, known = find_changed_files(tmp_path, "output", known)
        counts.append(len(files))
    assert counts == [1, 0]
    assert find_changed_files(tmp_path, "none", known) == ([], {})
