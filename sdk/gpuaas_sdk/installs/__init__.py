"""What an app installs on a machine, and the way back: a `Footprint` declares it, a receipt on the machine records it,
and an uninstall undoes exactly what the receipt lists."""

from gpuaas_sdk.installs.footprint import Footprint, Role, Software
from gpuaas_sdk.installs.receipts import Receipt, UnitBefore
from gpuaas_sdk.installs.undo import Undo

__all__ = ["Footprint", "Receipt", "Role", "Software", "Undo", "UnitBefore"]
