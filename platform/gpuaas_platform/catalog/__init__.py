"""Which apps there are, in which versions, and which project may deploy them."""
