"""Modules beside a config: siblings first, projects apart, edits seen."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.config import ConfigError
from engine.config.modules import ProjectModules
from engine.project import Project


def write(directory: Path, **files: str) -> Path:
    for name, text in files.items():
        file = directory / f"{name.replace('__in__', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return directory


def test_siblings_of_two_projects_stay_apart(tmp_path: Path) -> None:
    main = "import helper\ndef late():\n    from helper import NAME\n    return NAME\n"
    one = ProjectModules(write(tmp_path / "one", main=main, helper="NAME = 'one'\n"))
    two = ProjectModules(write(tmp_path / "two", main=main, helper="NAME = 'two'\n"))
    first, second = one.load("main"), two.load("main")
    assert (first.helper.NAME, second.helper.NAME) == ("one", "two")
    assert (first.late(), second.late()) == ("one", "two")
    assert "helper" not in sys.modules


def test_every_way_to_import_a_sibling(tmp_path: Path) -> None:
    directory = write(
        tmp_path,
        main=(
            "import pkg.inner\nimport pkg.inner as alias\nfrom pkg import inner, other\nfrom pkg.inner import DEEP\n"
            "from . import beside\nfrom .beside import VALUE\nimport plain.part as part\n"
        ),
        pkg__in____init__="",
        pkg__in__inner="from . import other\nimport beside\nDEEP = other.X + beside.VALUE\n",
        pkg__in__other="X = 1\n",
        beside="VALUE = 2\n",
        plain__in__part="Y = 3\n",
    )
    main = ProjectModules(directory).load("main")
    assert main.pkg.inner is main.alias is main.inner
    assert (main.DEEP, main.VALUE, main.part.Y) == (3, 2, 3)
    assert not {"pkg", "beside", "plain"} & set(sys.modules)


def test_an_edit_is_seen_and_nothing_is_written(tmp_path: Path) -> None:
    write(tmp_path, main="X = 1\n")
    assert ProjectModules(tmp_path).load("main").X == 1
    write(tmp_path, main="X = 2\n")  # same size, same second
    assert ProjectModules(tmp_path).load("main").X == 2
    assert [path.name for path in tmp_path.iterdir()] == ["main.py"]


def test_a_checkout_beside_the_config_is_not_loaded_twice(tmp_path: Path) -> None:
    import engine.config

    write(
        tmp_path,
        engine__in____init__="raise RuntimeError('a second engine')\n",
        main="import engine.config as c\n",
    )
    assert ProjectModules(tmp_path).load("main").c is engine.config


def test_a_directory_named_like_an_installed_package_does_not_hide_it(tmp_path: Path) -> None:
    (tmp_path / "safetensors").mkdir()
    write(tmp_path, main="import safetensors\nfile = safetensors.__file__\n")
    assert "site-packages" in ProjectModules(tmp_path).load("main").file


def test_an_error_in_a_sibling_is_placed_there(tmp_path: Path) -> None:
    write(tmp_path, main="import helper\n", helper="x = 1\ny = x / 0\n")
    with pytest.raises(ConfigError) as caught:
        ProjectModules(tmp_path).load("main")
    assert "helper.py:2: the module 'main' cannot be imported: ZeroDivisionError" in str(caught.value)


def test_closing_forgets_the_modules(make: Callable[..., Project]) -> None:
    project = make()
    project.episode()
    package = project.modules.package
    assert any(name.startswith(package) for name in sys.modules)
    project.close()
    assert not any(name.startswith(package) for name in sys.modules)
