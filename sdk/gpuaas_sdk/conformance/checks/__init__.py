"""The checks, by what they try. Importing this package registers all of them, in the order of the score card."""

from gpuaas_sdk.conformance.checks import undisturbed  # isort: skip
from gpuaas_sdk.conformance.checks import crashes  # isort: skip
from gpuaas_sdk.conformance.checks import wire  # isort: skip
from gpuaas_sdk.conformance.checks import exits  # isort: skip
from gpuaas_sdk.conformance.checks import breakers  # isort: skip
from gpuaas_sdk.conformance.checks import machines  # isort: skip
from gpuaas_sdk.conformance.checks import honesty  # isort: skip
from gpuaas_sdk.conformance.checks import gate  # isort: skip

from gpuaas_sdk.conformance.registry import CHECKS

ALL = tuple(CHECKS)
"""The names of all checks, in the order of the score card.

assert "residue" in conformance.ALL"""

__all__ = ["ALL", "CHECKS", "breakers", "crashes", "exits", "gate", "honesty", "machines", "undisturbed", "wire"]
