"""Sandboxes on this machine. What holds, by isolation:

=====================  ==========================================================================================
``bubblewrap``         namespaces of their own for users, processes, mounts, network, IPC, host name; a private
                       root with /usr read-only and bounded tmpfs (bytes and files) at /work, /tmp and /dev/shm;
                       no capability, no-new-privs, filtered system calls; nothing of the machine's network, a
                       loopback of the sandbox's own. As root everything runs as uid 65534 of the machine.
``landlock``           ordinary processes below one keeper; the kernel lets them read the system's directories and
                       write their workspace (a directory in the temporary directory: see ``Sandbox.workdir``);
                       no sockets at all; signals to other processes only on kernels before 6.12.
``none``               the same processes without these rules; only when the config says so.
=====================  ==========================================================================================

In all of them: scrubbed environment; limits per process on memory (data), file size, open files, CPU time; a limit on
the number of processes (per sandbox with bubblewrap, else a bound for the user's); deadlines that end whatever a
command started, detached processes included; output bounded while it is read. There is no bound on the memory of a
sandbox as a whole, beyond ``memory_mb`` times its processes.

A command that ends by itself leaves its background jobs running; they end with ``kill``, ``kill_all`` or release.
Linux only; elsewhere ``probe`` says so.
"""

from engine.sandboxes.local.provider import LocalProvider

__all__ = ["LocalProvider"]
