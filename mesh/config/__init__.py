"""Configuration: one TOML file, environment variables, flags; each value remembers its origin.

Precedence is flag > environment > file > default. For ``[client]`` a context (`mesh.config.contexts`) takes
the place of the file; one that a flag names takes that of the environment, too.

One file is read, the first of these that exists:

1. ``--config FILE``, or ``MANGROVE_CONFIG``
2. ``./mangrove.toml``
3. ``$XDG_CONFIG_HOME/mangrove/config.toml`` (``~/.config`` if that is not set)
4. ``/etc/mangrove/config.toml``
"""

from mesh.config.contexts import Contexts, contexts_path, read_contexts
from mesh.config.http import http_listen
from mesh.config.loading import FlagError, Loaded, candidates, examine, line_of, load, parse
from mesh.config.mesh_key import mesh_key
from mesh.config.sections import (
    BrokerConfig,
    ClientConfig,
    Config,
    ConsoleConfig,
    Option,
    options,
    seconds_problem,
)
from mesh.config.template import as_section, as_toml, template

__all__ = [
    "BrokerConfig",
    "ClientConfig",
    "Config",
    "ConsoleConfig",
    "Contexts",
    "FlagError",
    "Loaded",
    "Option",
    "as_section",
    "as_toml",
    "candidates",
    "contexts_path",
    "examine",
    "http_listen",
    "line_of",
    "load",
    "mesh_key",
    "options",
    "parse",
    "read_contexts",
    "seconds_problem",
    "template",
]
