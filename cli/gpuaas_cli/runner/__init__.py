"""Run a command from its declaration: arguments, request, answer, exit code."""
