"""The catalog: apps, their versions, and which projects may deploy them."""
