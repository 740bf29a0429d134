"""Signed releases of the agent, and the release key that the platform of the tests is configured with."""

import base64
import hashlib
import io
import zipfile

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gpuaas_contract import agents
from platform_world import Person, World

KEY = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"release key of the tests").digest())


def public_pem(key: Ed25519PrivateKey = KEY) -> str:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.PEM, form).decode()


def archive(content: str = "print('an agent')") -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        file.writestr("__main__.py", content)
    return made.getvalue()


def body(content: bytes, version: str = "1.0.0", key: Ed25519PrivateKey = KEY) -> dict[str, str]:
    """The request that registers this content, signed with the key."""
    signature = key.sign(agents.release_message(version, hashlib.sha256(content).hexdigest()))
    encoded = {"content": base64.b64encode(content), "signature": base64.b64encode(signature)}
    return {"version": version, **{name: value.decode() for name, value in encoded.items()}}


async def second_operator(world: World) -> Person:
    return await world.person("second-operator", "platform_ops", "platform")


async def approved(world: World, content: bytes, version: str = "1.0.0") -> agents.AgentRelease:
    """A release that the admin registered and a second operator approved."""
    release = await world.call(agents.AGENT_RELEASE_REGISTER, body(content, version))
    other, why = await second_operator(world), {"reason": "built it from the same source"}
    return await world.call(agents.AGENT_RELEASE_APPROVE, why, token=other.token, sha256=release.sha256)
