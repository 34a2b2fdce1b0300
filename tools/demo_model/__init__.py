"""How the demonstration policy in `engine/local_loops/models/loops-demo-1m` is made.

The package is needed only to rebuild that model; nothing that ships imports it. See README.md beside this file.
"""
