"""Agent RL: studies of reinforcement learning over whole trajectories.

The way of the data is ``task -> rollout -> trajectory -> reward -> update``; the packages carry
those names. Importing the package loads no heavy library.
"""

import os

# A study must not depend on what a hub serves today. Whoever wants the network says so by setting
# these variables before the import; nothing here overrides them.
for _name, _value in {
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_DATASETS_OFFLINE": "1",
    "DISABLE_TELEMETRY": "1",
    "DVC_NO_ANALYTICS": "1",
    "WANDB_DISABLED": "true",
    "TRL_EXPERIMENTAL_SILENCE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYGAME_HIDE_SUPPORT_PROMPT": "1",
}.items():
    os.environ.setdefault(_name, _value)

__version__ = "0.1.0"
