"""The parts of the platform's tests that the bad day uses: processes to hurt, and clients of their API."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "platform" / "tests"))
import postgres_server
from agent_process_on_folder import AgentProcess
from event_streams import EventStream
from server_process import APP, Cloud, ServerProcess

__all__ = ["APP", "AgentProcess", "Cloud", "EventStream", "ServerProcess", "postgres_server"]
