"""The GPUaaS node agent. It runs as root on one node, pulls signed typed tasks, and connects only to the platform."""

AGENT_VERSION = "0.1.0"
