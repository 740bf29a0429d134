"""Entry point of `python -m gpuaas_agent`; the built .pyz starts the same function."""

import sys

from gpuaas_agent import main

if __name__ == "__main__":
    sys.exit(main.main())
