"""Call the platform's API. `Client` sends any endpoint of the contract; `SyncClient` does so in scripts.
`gpuaas_sdk.auth` supplies credentials and `gpuaas_sdk.outcomes` lists the errors of calls without a usable answer."""

from gpuaas_sdk.client.client import Client, Tagged
from gpuaas_sdk.client.sync import SyncClient

__all__ = ["Client", "SyncClient", "Tagged"]
