"""Import the file or module that declares agents.

Importing a file executes it. An error there is reported with its file and line; no run has been started.
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


def load(source: str) -> Any:
    """Import a file or a module, which registers the agents that it declares. Raises UsageError."""
    return _file(Path(source)) if _is_file(source) else _module(source)


def _is_file(source: str) -> bool:
    return source.endswith(".py") or source.startswith(".") or "/" in source or Path(source).is_file()


def _file(path: Path) -> Any:
    if path.is_dir():
        raise UsageError(
            f"{path} is a directory", remedy="Name the file in it, or the module by its dotted name"
        )
    if not path.is_file():
        raise UsageError(f"there is no file {path}", remedy=f"Paths are relative to {Path.cwd()}")
    path = path.resolve()
    root, parts = path.parent, [path.stem]
    while (root / "__init__.py").is_file():  # the file is part of a package: its relative imports must work
        parts.insert(0, root.name)
        root = root.parent
    sys.path.insert(0, str(root))
    if len(parts) > 1:
        return _module(".".join(parts))
    name = path.stem
    if name in sys.modules or name in sys.stdlib_module_names:
        name = f"__{name}__"  # a file called json.py must not replace the json of other modules
    spec = importlib.util.spec_from_file_location(name, path, loader=_Source(name, str(path)))
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file", remedy="Name a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    loader = spec.loader
    _imported(str(path), lambda: loader.exec_module(module))
    return module


class _Source(SourceFileLoader):
    """Always compiles the source: after two edits within a second, cached bytecode may be stale."""

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
        position = f"{error.filename}:{error.lineno}:{error.offset}"
        line = f": {error.text.strip()}" if error.text else ""
        raise UsageError(f"{position}: {error.msg}{line}", remedy="Fix the file and try again") from None
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
    position = raised_at(error)
    where = f" at {position}" if position else ""
    text = error.what if isinstance(error, NineLivesError) else str(error)
    return UsageError(
        f"{name} cannot be imported: {type(error).__name__}: {text}{where}",
        remedy=(error.remedy if isinstance(error, NineLivesError) else None) or "Fix it and try again",
    )


def raised_at(error: BaseException) -> str | None:
    """Return `file:line` of the user's code that raised an error; None when no frame is the user's.

    This is the last frame that is neither ours nor a library's; else the last that is not ours.
    """
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((_OURS, "<"))
    ]
    own = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)] or frames
    return f"{own[-1].filename}:{own[-1].lineno}" if own else None
