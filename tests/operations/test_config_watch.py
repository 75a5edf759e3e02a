import os
from pathlib import Path

from operations.config_watch import LARGEST_BYTES, ConfigWatch


def write(path: Path, text: str) -> None:
    """Into a new file that takes the old one's place, so that the inode tells even within one tick of the clock."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)


def test_a_changed_file_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("mode: enforce\n")
    watch = ConfigWatch(path)
    assert watch.text == "mode: enforce\n"
    assert watch.poll() is None
    write(path, "mode: observe\n")
    assert watch.poll() == "mode: observe\n"
    assert watch.text == "mode: observe\n"
    assert watch.poll() is None


def test_a_change_of_the_same_length_within_the_clocks_tick_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("a: 1\n")
    stat = path.stat()
    watch = ConfigWatch(path)
    write(path, "a: 2\n")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert watch.poll() == "a: 2\n"


def test_an_empty_file_is_ignored_until_the_next_look(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("a: 1\n")
    watch = ConfigWatch(path)
    write(path, "")
    assert watch.poll() is None
    write(path, " \n")
    assert watch.poll() is None
    write(path, "a: 2\n")
    assert watch.poll() == "a: 2\n"


def test_a_file_that_vanishes_keeps_the_last_text_and_is_seen_when_it_returns(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("a: 1\n")
    watch = ConfigWatch(path)
    path.unlink()
    assert watch.poll() is None
    assert watch.text == "a: 1\n"
    path.write_text("a: 2\n")
    assert watch.poll() == "a: 2\n"


def test_a_file_that_was_only_touched_is_no_news(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("a: 1\n")
    watch = ConfigWatch(path)
    os.utime(path, (1, 1))
    assert watch.poll() is None


def test_a_file_that_comes_later_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    watch = ConfigWatch(path)
    assert watch.text is None
    assert watch.poll() is None
    path.write_text("a: 1\n")
    assert watch.poll() == "a: 1\n"


def test_nothing_in_the_files_place_raises(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("a: 1\n")
    watch = ConfigWatch(path)
    path.unlink()
    path.mkdir()
    assert watch.poll() is None
    path.rmdir()
    path.write_bytes(b"x" * (LARGEST_BYTES + 1))
    assert watch.poll() is None
    path.unlink()
    path.write_bytes(b"\xff\xfe: 1\n")
    assert "\ufffd" in (watch.poll() or "")
    assert ConfigWatch("nul\0byte").poll() is None


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert ConfigWatch(path).text == "a: 1\n"
