"""A server that answers as Blaxel does, over the sandboxes of this machine: see README.md.

``python -m tests.blaxel_emulator --port 0`` serves and prints one line of JSON; tests use
``serving.emulator()`` in their own process or ``serving.EmulatorProcess`` in one of its own.
"""
