"""From an incident in the logs to a scenario that plays it again: `happenings`, then `scenario_text`."""
