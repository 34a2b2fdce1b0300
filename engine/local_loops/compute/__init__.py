"""The compute back end of the local Loops server. :mod:`.interface` is its face, :mod:`.numpy_backend` the default.

Import what is needed from those modules: this package itself imports nothing, so that numpy is not loaded before the
server's process has set its number of threads.
"""
