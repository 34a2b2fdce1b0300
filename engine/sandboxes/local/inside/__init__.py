"""What runs outside the engine's process: the broker, one keeper per sandbox, and a guard per command.

This package uses the standard library alone and imports nothing from the rest of the engine: the broker is started
as ``python -I -S`` with an empty environment, so that it is small (it is forked for every sandbox and command) and
holds nothing that a sandbox must not see.

::

    engine process ── broker            one per provider; ends when the engine's process does
                        └─ keeper       one per sandbox, joined to its namespaces, without any capability
                             ├─ bwrap ─ init     holds the namespaces; when init dies everything in them dies
                             └─ guard            one per running command: subreaper, ends its whole tree
                                  └─ command

A keeper that dies takes bwrap along (parent-death signal), bwrap takes init, init takes the pid namespace.
"""
