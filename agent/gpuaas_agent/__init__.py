"""The GPUaaS node agent. Runs as root on one node, pulls signed typed tasks, and speaks only to the platform."""

AGENT_VERSION = "0.1.0"
