"""The lab over HTTP: the API under /api/v1, its documentation, and the pages.

`app.create_app` makes the application, `app.serve` runs it. `security` authenticates requests, and
`middleware` checks every request.
"""
