"""Everything that talks to Loops, and the only importer of ``baseten``.

``baseten.loops`` takes most of a second to import and installs global tracing, so it is imported inside functions
of this package, in the engine's thread, never at the top of a module that a first paint needs.
"""
