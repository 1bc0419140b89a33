"""Lets the capture tests run against a kit: ``dumpers`` and all below it are the kit's own modules, not second copies.

On PYTHONPATH together with the folder that holds the kit. Importing it loads every module of the kit's ``_capture`` and
enters each under the name it has in the workbench, itself included.
"""

import importlib
import pkgutil
import sys

from precision_tool import _capture

for _found in pkgutil.walk_packages(_capture.__path__, _capture.__name__ + "."):
    importlib.import_module(_found.name)
for _name in [name for name in sys.modules if name.startswith(_capture.__name__ + ".")]:
    sys.modules["dumpers" + _name[len(_capture.__name__) :]] = sys.modules[_name]
sys.modules["dumpers"] = _capture
