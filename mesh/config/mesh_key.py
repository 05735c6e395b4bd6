"""The key of the mesh. It is never a flag, since command lines are visible to other users."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from mesh.config.sections import BrokerConfig
from mesh.errors import ConfigError
from mesh.limits import MESH_KEY_MIN


def mesh_key(config: BrokerConfig, environ: Mapping[str, str] | None = None) -> bytes | None:
    """Read the key of the mesh from ``MANGROVE_MESH_KEY`` or the key file, without white space around it.

    Raises:
        ConfigError: the file cannot be read, or there is no key in it.
    """
    environ = os.environ if environ is None else environ
    key = environ.get("MANGROVE_MESH_KEY", "").strip().encode()
    source = "MANGROVE_MESH_KEY"
    if not key and config.mesh_key_file is not None:
        source = config.mesh_key_file
        try:
            key = Path(source).expanduser().read_bytes().strip()
        except OSError as error:
            raise ConfigError(f"{source}: the mesh key cannot be read: {error.strerror}") from None
        except RuntimeError:  # neither HOME nor the user database names the home folder
            raise ConfigError(f"{source}: this user has no home folder; write the whole path") from None
        if not key:
            raise ConfigError(f"{source}: the mesh key file is empty")
    if key and len(key) < MESH_KEY_MIN:
        raise ConfigError(f"{source}: the mesh key has {len(key)} bytes; use at least {MESH_KEY_MIN}")
    return key or None
