"""The name under which environments that were installed before `pytest_mangrove` look for the plugin."""

pytest_plugins = ["pytest_mangrove"]
