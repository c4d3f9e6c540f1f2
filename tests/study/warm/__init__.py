"""Frameworks that are imported once: a server for each forks a process for every program that a test starts.

`client.py` stands where an environment's `bin/python` is expected; `server.py` runs in the real environment;
`environments.py` lays both out as a folder `.environments` that the launcher and the workflow use like the real one.
"""
