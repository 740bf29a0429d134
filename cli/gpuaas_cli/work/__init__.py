"""Work that takes time: follow operations, wait for nodes and allocations."""
