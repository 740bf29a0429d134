"""Delete projects. A package of its own, because it asks many domains what the project still owns."""
