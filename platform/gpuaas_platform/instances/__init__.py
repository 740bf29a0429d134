"""App instances, their members, and operations: how anything long changes. Knows roles and members, never an app."""
