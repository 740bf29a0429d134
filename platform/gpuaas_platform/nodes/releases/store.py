"""SQL of the agent's releases and of their files."""

import base64

from gpuaas_contract.agents import AgentRelease

from gpuaas_platform.kit import db
from gpuaas_platform.kit.tables import Table

AGENT_RELEASES = Table("agent_releases", AgentRelease, "sha256")


async def add_file(tx: db.Tx, sha256: str, content: bytes) -> None:
    encoded = base64.b64encode(content).decode()
    await tx.run("INSERT INTO agent_files (sha256, content) VALUES ($1, $2)", sha256, encoded)


async def file(reader: db.Reader, sha256: str) -> bytes | None:
    row = await reader.one("SELECT content FROM agent_files WHERE sha256 = $1", sha256)
    return base64.b64decode(row[0]) if row is not None else None
