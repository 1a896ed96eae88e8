"""Imported once by the process that workers fork from: the modules that each of them needs.

Garbage collection rests meanwhile (imports make no garbage, and looking for it takes a sixth of
their time) and afterwards leaves alone what was imported.
"""

import gc
import importlib
import os

VARIABLE = "AGENT_RL_PRELOAD"
"""Environment variable that names the modules, separated by commas."""

gc.disable()
for _name in filter(None, os.environ.get(VARIABLE, "").split(",")):
    importlib.import_module(_name)
gc.freeze()
gc.enable()
