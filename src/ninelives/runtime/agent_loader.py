"""Load the code that declares agents: a file or a module, as a person names it.

Importing a file runs it: whatever goes wrong there is told with its place, and nothing has been started.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import sysconfig
import traceback
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

from ninelives.core.errors import NineLivesError, UsageError

_OURS = str(Path(__file__).parents[1]) + os.sep
_LIBRARIES = tuple(
    f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib")
)


def load(place: str) -> Any:
    """Import a file or a module, and with it the agents that it declares.

    Raises UsageError.
    """
    return _file(Path(place)) if _is_file(place) else _module(place)


def _is_file(place: str) -> bool:
    return place.endswith(".py") or place.startswith(".") or "/" in place or Path(place).is_file()


def _file(path: Path) -> Any:
    if path.is_dir():
        raise UsageError(
            f"{path} is a directory", remedy="Name the file in it, or the module by its dotted name"
        )
    if not path.is_file():
        raise UsageError(f"there is no file {path}", remedy=f"It is looked for in {Path.cwd()}")
    path = path.resolve()
    root, parts = path.parent, [path.stem]
    while (root / "__init__.py").is_file():  # part of a package: its relative imports must work
        parts.insert(0, root.name)
        root = root.parent
    sys.path.insert(0, str(root))
    if len(parts) > 1:
        return _module(".".join(parts))
    name = path.stem
    if name in sys.modules or name in sys.stdlib_module_names:
        name = f"__{name}__"  # a file called json.py must not become everybody's json
    spec = importlib.util.spec_from_file_location(name, path, loader=_Source(name, str(path)))
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is no Python file", remedy="Name a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    loader = spec.loader
    _imported(str(path), lambda: loader.exec_module(module))
    return module


class _Source(SourceFileLoader):
    """Compiles what the file says now: bytecode of an edit within the same second would pass for its own."""

    def get_code(self, fullname: str) -> CodeType:
        """Return the file's code."""
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def _module(name: str) -> Any:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    return _imported(name, lambda: importlib.import_module(name))


def _imported(name: str, load: Any) -> Any:
    try:
        return load()
    except SyntaxError as error:
        place = f"{error.filename}:{error.lineno}:{error.offset}"
        line = f": {error.text.strip()}" if error.text else ""
        raise UsageError(f"{place}: {error.msg}{line}", remedy="Mend the file and try again") from None
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise UsageError(
                f"there is no module {error.name!r}",
                remedy="Name a file, or a module that can be imported here",
            ) from None
        raise _broken(name, error) from None
    except (Exception, SystemExit) as error:
        raise _broken(name, error) from error


def _broken(name: str, error: BaseException) -> UsageError:
    place = raised_at(error)
    where = f" at {place}" if place else ""
    said = error.what if isinstance(error, NineLivesError) else str(error)
    return UsageError(
        f"{name} cannot be imported: {type(error).__name__}: {said}{where}",
        remedy=(error.remedy if isinstance(error, NineLivesError) else None) or "Mend it and try again",
    )


def raised_at(error: BaseException) -> str | None:
    """Return file and line of the user's code that an error came out of; None when it never was there.

    That is the last frame which is neither ours nor a library's; else the last that is not ours.
    """
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((_OURS, "<"))
    ]
    own = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)] or frames
    return f"{own[-1].filename}:{own[-1].lineno}" if own else None
