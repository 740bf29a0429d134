"""What crosses the wire, as data: structs, endpoints, permission keys, error codes, lifecycles, events.

Nothing here acts. `registry.ENDPOINTS` is the one table from which routing, OpenAPI, the SDK and the tests are made.
"""

VERSION = "0.1.0"
