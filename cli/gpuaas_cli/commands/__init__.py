"""The commands of the CLI in modules; `main` imports only the module of the command that is run."""
