"""etscope for agents: a server of the Model Context Protocol (`etscope agent mcp`), and a skill.

The server answers from the same commands that a person uses, each in a separate process: a
damaged file or a long computation ends that process, not the server.
"""
