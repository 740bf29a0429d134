"""Run a command from its declaration: arguments, request, answer, exit code."""

from gpuaas_cli.runner.call import Call as Call
from gpuaas_cli.runner.call import words as words
from gpuaas_cli.runner.command import SWITCH as SWITCH
from gpuaas_cli.runner.command import AnyEndpoint as AnyEndpoint
from gpuaas_cli.runner.command import Command as Command
from gpuaas_cli.runner.command import Field as Field
from gpuaas_cli.runner.command import Levels as Levels
from gpuaas_cli.runner.command import asked as asked
from gpuaas_cli.runner.command import fixed as fixed
from gpuaas_cli.runner.command import nothing as nothing
from gpuaas_cli.runner.command import shared as shared
