"""Sandboxes on Blaxel, through its own SDK: ``provider.BlaxelProvider``. Nobody else imports ``blaxel``.

Importing this package imports nothing of the SDK; that takes a second or more and happens in a thread (``sdk.load``).
"""
