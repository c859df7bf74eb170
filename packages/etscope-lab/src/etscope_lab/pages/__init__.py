"""The lab's web pages: jobs, a job's result, histories, two jobs side by side, devices.

The server renders HTML; a small script (built from `web/src/lab`) draws the charts, and updates a
page while jobs are running. Everything is served by this server.
"""
