"""Composition of ``configs/`` with Hydra's compose API (no plugins, no ``instantiate``)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from agent_rl.errors import UserError

CONFIGS = Path("configs")


def compose_config(
    name: str, overrides: Sequence[str] = (), directory: Path = CONFIGS
) -> dict[str, Any]:
    """Compose one primary config into plain containers.

    Raises: UserError for an unknown group option, key or value.
    """
    if not directory.is_dir():
        raise UserError(f"no folder {directory}/ here; run from the root of the repository")
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(directory.resolve()), version_base="1.3"):
            composed = compose(config_name=name, overrides=list(overrides))
            content = OmegaConf.to_container(composed, resolve=True)
    except (HydraException, OmegaConfBaseException) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"configs/{name}.yaml with {list(overrides)}: {reason}") from error
    assert isinstance(content, dict)
    return {str(key): value for key, value in content.items()}
