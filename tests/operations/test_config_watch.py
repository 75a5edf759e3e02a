import os
from pathlib import Path

from operations.reload import LARGEST_BYTES, ConfigWatch


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
    assert ConfigWatch(Path("nul\0byte")).poll() is None


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert ConfigWatch(path).text == "a: 1\n"


def test_a_file_that_is_gone_is_trouble_once_and_not_at_the_first_look(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("a: 1\n")
    watch = ConfigWatch(path)
    for _ in range(2):
        path.unlink()
        troubles = [(watch.poll(), watch.trouble())[1] for _ in range(5)]
        assert troubles == [None, "is gone", None, None, None]
        path.write_text("a: 1\n")
        assert (watch.poll(), watch.trouble()) == (None, None)


def test_a_file_that_cannot_be_read_any_more_is_trouble(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("a: 1\n")
    watch = ConfigWatch(path)
    path.write_bytes(b"x" * (LARGEST_BYTES + 1))
    assert [(watch.poll(), watch.trouble())[1] for _ in range(3)] == [
        None,
        "is larger than 128 KiB, so it is no config",
        None,
    ]
    path.unlink()
    path.mkdir()
    assert [(watch.poll(), watch.trouble())[1] for _ in range(3)] == [None, "cannot be read (Is a directory)", None]


def test_a_file_that_never_was_there_is_no_trouble(tmp_path: Path) -> None:
    watch = ConfigWatch(tmp_path / "config.yaml")
    assert [(watch.poll(), watch.trouble())[1] for _ in range(4)] == [None] * 4


def test_a_file_that_an_editor_moves_away_for_a_moment_is_no_trouble(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("a: 1\n")
    watch = ConfigWatch(path)
    path.unlink()
    assert (watch.poll(), watch.trouble()) == (None, None)
    path.write_text("a: 2\n")
    assert (watch.poll(), watch.trouble()) == ("a: 2\n", None)
