"""``make quick``: which tests belong to a file."""

from __future__ import annotations

from pathlib import Path

from quick import chosen, mirrored


def test_a_file_has_the_tests_named_after_it_first() -> None:
    named, users = mirrored(Path("captures/live/ring.py"))
    assert named == [Path("tests/captures/live/test_ring.py")]
    assert Path("tests/captures/live/test_filter.py") in users


def test_a_file_without_has_those_of_its_folder() -> None:
    named, users = mirrored(Path("dissect/layers/new_layer.py"))
    assert Path("tests/dissect/layers/test_any_bytes.py") in named
    assert users == []


def test_a_changed_test_is_played_itself_and_the_rules_of_the_project_last() -> None:
    found = chosen([Path("tests/test_door.py"), Path("tests/playbook/rpc.py"), Path("captures/live/ring.py")])
    assert found[:2] == ["tests/test_door.py", "tests/captures/live/test_ring.py"]
    assert found[-1] == "tests/test_project.py"
