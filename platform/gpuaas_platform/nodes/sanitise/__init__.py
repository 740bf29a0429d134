"""Sanitise nodes between projects: a provisioner or an operator reinstalls the machine, which is not trusted."""
