"""Imports modules once and forks a process for each program that a client (`client.py`) asks for.

Four kinds of processes, each the parent of the next, and each killed by the kernel when its parent dies:

- the server listens, and imports nothing;
- one importer for each number of threads, which the libraries read when they are imported, imports the modules;
- a guard for each program waits for its end, or for that of the client, which ends the program;
- the program itself, in a session of its own.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import struct
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

HIGHEST_DESCRIPTOR = 31
"""The importer keeps all up to this occupied, so that a program gets its own under the numbers that it expects."""
POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
LATER = ("numpy.random", "torch._dynamo")
"""What is imported when it is first used, and nothing computes with: seconds of every program otherwise."""

NAMESPACES = {"net": 0x40000000, "uts": 0x04000000, "mnt": 0x00020000}
"""By their names below /proc: their flags for setns(2)."""

Request = dict[str, Any]


def die_with_parent(parent: int) -> None:
    parent_death_signal = 1
    ctypes.CDLL(None).prctl(parent_death_signal, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def serve(modules: list[str], listener: socket.socket) -> Request:
    """Never returns in the server, nor in an importer or a guard; in a program, returns what to run."""
    importers: dict[int, socket.socket] = {}
    while True:
        line, _ = listener.accept()
        threads = line.recv(1)[0]
        if threads not in importers:
            own, importers_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            parent = os.getpid()
            if not os.fork():
                die_with_parent(parent)
                for other in (listener, line, own, *importers.values()):
                    other.close()
                return serve_imported(modules, threads, importers_end)
            importers_end.close()
            importers[threads] = own
        socket.send_fds(importers[threads], [b"line"], [line.fileno()])
        line.close()


def serve_imported(modules: list[str], threads: int, requests: socket.socket) -> Request:
    while os.open(os.devnull, os.O_RDONLY) < HIGHEST_DESCRIPTOR:
        pass
    os.environ.update(dict.fromkeys(POOLS, str(threads)))
    for module in modules:
        importlib.import_module(module)
    for module in LATER:
        if module.partition(".")[0] in sys.modules:
            importlib.import_module(module)
    if "jax" in sys.modules and (folder := os.environ.get("JAX_COMPILATION_CACHE_DIR")):
        keep_compiled(folder)
    gc.collect()
    gc.freeze()  # or each program's first collection would copy every page
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a guard
    while True:
        _, (descriptor, *_), _, _ = socket.recv_fds(requests, 4, 1)
        line = socket.socket(fileno=descriptor)
        parent = os.getpid()
        if not os.fork():
            die_with_parent(parent)
            requests.close()
            return guard(line)
        line.close()


def keep_compiled(folder: str) -> None:
    """Have every rank keep each program that JAX compiles: the same ones take seconds of every launch.

    By itself JAX keeps what took long, and of rank 0 alone, so that no two ranks write the same file. Here a rank waits
    while another one compiles a program of this name, and then reads it. XLA optimizes little: no test is about its speed.
    """
    import jax
    from jax._src import compiler, distributed
    from jaxlib import _jax

    os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0"
    _jax.CompileOptions()  # reads the flags, which the environment of a program does not have
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    write, compiled = compiler._cache_write, compiler.compile_or_get_cached

    def write_as_rank_0(*arguments: Any) -> None:
        state = distributed.global_state
        rank, state.process_id = state.process_id, 0
        write(*arguments)
        state.process_id = rank

    def one_after_another(backend: Any, program: Any, *arguments: Any, **options: Any) -> Any:
        name = str(program.operation.attributes["sym_name"]).strip('"')
        with Path(f"{folder}-{name}.lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return compiled(backend, program, *arguments, **options)

    compiler._cache_write = write_as_rank_0
    compiler.compile_or_get_cached = one_after_another


def guard(line: socket.socket) -> Request:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, descriptors, _, _ = socket.recv_fds(line, 4, HIGHEST_DESCRIPTOR + 1)
    content = line.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)
    request: Request = json.loads(content)
    client = client_of(line)
    parent = os.getpid()
    if not (program := os.fork()):
        die_with_parent(parent)
        line.close()
        follow(client)
        take_over(request, descriptors)
        return request
    for descriptor in descriptors:
        os.close(descriptor)
    status = watch(program, line)
    line.sendall(status.to_bytes(4, "big"))
    os._exit(0)


def client_of(line: socket.socket) -> int:
    """The process at the other end."""
    credentials = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid: int = struct.unpack("3i", credentials)[0]
    return pid


def follow(client: int) -> None:
    """Enter the namespaces of the client: an emulated host may have a name and a network of its own."""
    other = [
        flag
        for name, flag in NAMESPACES.items()
        if os.readlink(f"/proc/{client}/ns/{name}") != os.readlink(f"/proc/self/ns/{name}")
    ]
    library = ctypes.CDLL(None, use_errno=True)
    if other and library.setns(os.pidfd_open(client), sum(other)):
        raise OSError(ctypes.get_errno(), "cannot enter the namespaces of the client")


def watch(program: int, line: socket.socket) -> int:
    """The exit status of the program, which gets the client's signals, and SIGKILL when the client dies."""
    ended = os.pidfd_open(program)
    while True:
        ready, _, _ = select.select([ended, line], [], [])
        if ended in ready:
            return os.waitpid(program, 0)[1]
        for number in line.recv(1) or bytes([signal.SIGKILL]):
            os.kill(program, number)
            if number == signal.SIGKILL:
                os._exit(0)


def take_over(request: Request, descriptors: list[int]) -> None:
    """Put this process in the client's place."""
    os.setsid()
    out_of_the_way = HIGHEST_DESCRIPTOR + 1
    moved = [fcntl.fcntl(taken, fcntl.F_DUPFD_CLOEXEC, out_of_the_way) for taken in descriptors]
    os.closerange(0, out_of_the_way)
    for taken, number in zip(moved, request["descriptors"], strict=True):
        os.dup2(taken, number)
        os.close(taken)
    for number in request["ignored"]:
        signal.signal(number, signal.SIG_IGN)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    words = request["arguments"]
    rules = words[:2] == ["-m", "snakemake"] and "local" in words
    if rules or "lightning" in sys.modules:
        # By which Snakemake runs the commands of its rules (not where they are jobs of a scheduler), and Lightning starts its other ranks.
        sys.executable = request["interpreter"]
    tempfile.tempdir = None  # chosen anew when it is asked for, as the environment may name another


def run(arguments: list[str], *, safe: bool = False) -> None:
    """What `python ARGUMENTS` does; this process ends as the program does. `safe`: no module of the working folder is imported."""
    match arguments:
        case ["-u", *rest]:  # nothing is buffered in any program
            run(rest, safe=safe)
        case ["-P", *rest]:
            run(rest, safe=True)
        case ["-m", module, *_]:
            sys.argv = arguments[1:]
            if not safe:
                sys.path.insert(0, os.getcwd())
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case [script, *_] if not script.startswith("-"):
            sys.argv = arguments
            if not safe:
                sys.path.insert(0, str(Path(script).parent))
            runpy.run_path(script, run_name="__main__")
        case _:
            sys.exit(f"a warm server runs modules and scripts, not {arguments}")


def main() -> None:
    listener, parent, *modules = sys.argv[1:]
    die_with_parent(int(parent))
    request = serve(modules, socket.socket(fileno=int(listener)))
    status = 0
    try:
        run(request["arguments"])
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        status = end.code or 0
    if "mpi4py" in sys.modules:
        sys.exit(status)  # MPI is finalized by C, at the end of the interpreter
    end_at_once(status)


def end_at_once(status: int) -> None:
    """As Python ends, but without taking every module apart, which would copy each page that the program shares with the importer."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    ctypes.CDLL(None).fflush(None)
    os._exit(status & 0xFF)


if __name__ == "__main__":
    main()
