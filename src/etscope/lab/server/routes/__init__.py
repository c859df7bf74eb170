"""The API's operations, a router for each kind of thing."""
