"""Sanitise nodes between projects: a provisioner reinstalls the machine, or operators do. The machine is not trusted."""
