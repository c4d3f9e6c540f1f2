"""Calls every hook of the probe while a part of the probe raises, and prints a line for each hook that lets the error through.

python fence.py. The variable CKPTBENCH_PROBE_CHECK says which hooks there are. Engines are stand-ins: each name is there, and does nothing.
"""

from __future__ import annotations

import contextlib
import inspect
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import CodeType, FrameType, SimpleNamespace
from typing import Any

from ckptbench_probe import arm, harmless
from ckptbench_probe.process import PROCESS


class LibraryError(BaseException):
    """Some libraries raise errors that are no `Exception`, as `torch.distributed.checkpoint` does."""


class Hostile:
    """Whatever is asked of it, it raises."""

    def __getattr__(self, name: str) -> Any:
        raise LibraryError(name)


class Result:
    __code__ = (lambda: None).__code__


RESULT = Result()
HOOKS: list[Callable[..., Any]] = []
"""Functions that were handed to an engine, to be called by it."""


class Engine:
    """A module or a class: names with a capital are classes, others functions."""

    def __init__(self) -> None:
        self.first: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        self.first[name] = (
            Engine() if name[0].isupper() and not name.isupper() else self._function()
        )
        self.__dict__[name] = self.first[name]
        return self.first[name]

    def _function(self) -> Any:
        def original(*args: Any, **kwargs: Any) -> Any:
            HOOKS.extend(one for one in args if callable(one) and not isinstance(one, Hostile))
            if FAILS:
                raise EngineError
            return RESULT

        return original

    def hooks(self, name: str) -> Iterator[tuple[str, Callable[..., Any]]]:
        for own, value in self.first.items():
            if isinstance(value, Engine):
                yield from value.hooks(f"{name}.{own}")
            elif self.__dict__[own] is not value:
                yield f"{name}.{own}", self.__dict__[own]


class EngineError(Exception):
    """Of the engine: its program must see it."""


FAILS: list[bool] = []
WRAPPERS: set[CodeType] = set()
"""Functions around those of the engines, also where one is around another."""
FENCE = harmless.harmless(len).__code__
ARGUMENTS = (
    tuple(Hostile() for _ in range(3)),
    ({"weight": 1}, "/dev/null"),
    (Hostile(), {"weight": [1, 2]}, "/dev/null"),
)


def is_part(frame: FrameType | None) -> bool:
    return frame is not None and "ckptbench_probe" in frame.f_globals.get("__name__", "")


def wraps(code: CodeType) -> bool:
    """What calls the engine can do so only outside of the fence."""
    return "original" in code.co_freevars + code.co_varnames or code is FENCE or code in WRAPPERS


class Raises:
    """At the first call that one part of the probe makes of another, and that is not among those `done`."""

    def __init__(self, done: set[tuple[CodeType, CodeType]]) -> None:
        self.done = done
        self.name = ""

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or wraps(frame.f_code) or not (is_part(frame) and is_part(frame.f_back)):
            return
        call = frame.f_code, frame.f_back.f_code  # type: ignore[union-attr]
        if call not in self.done and not in_fence(frame):
            self.done.add(call)
            self.name = frame.f_code.co_name
            raise LibraryError(self.name)


def in_fence(frame: FrameType | None) -> bool:
    """What says that an error was caught is no part that may raise."""
    while frame is not None:
        if frame.f_globals is vars(harmless) and frame.f_code is not FENCE:
            return True
        frame = frame.f_back
    return False


def held(name: str, hook: Callable[[], Any], expected: Any) -> None:
    """Until no call is left in which an error could be raised."""
    done: set[tuple[CodeType, CodeType]] = set()
    while True:
        raises = Raises(done)
        sys.settrace(raises)
        try:
            result = hook()
        except EngineError:
            result = EngineError
        except BaseException as error:  # noqa: BLE001 - it is what is looked for
            result = error
        finally:
            sys.settrace(None)
        if result is not expected:
            print(f"{name}: {raises.name or 'an argument'}: {result!r}")
        if not raises.name:
            return


def called(hook: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """With as many arguments as it takes."""
    code = hook.__code__
    takes_any = bool(code.co_flags & inspect.CO_VARARGS)
    return hook(*(arguments if takes_any else arguments[: code.co_argcount]))


def main() -> None:
    torch = Engine()
    for name in ("compiler", "_dynamo", "nn", "optim"):
        torch.__dict__[name] = Engine()
    torch._dynamo.__dict__["decorators"] = SimpleNamespace(skip=lambda function: None)
    torch.compiler.__dict__["disable"] = lambda function: function
    sys.modules["torch"] = torch  # type: ignore[assignment]
    hooks: dict[str, Callable[..., Any]] = {}
    for name in arm.ENGINES:
        engine = Engine()
        arm.wrap(name, engine)  # type: ignore[arg-type]
        own = dict(engine.hooks(name))
        for hook in own.values():
            inner: Any = hook
            while inner is not None:
                WRAPPERS.add(inner.__code__)
                inner = getattr(inner, "__wrapped__", None)
        for hook in own.values():
            with contextlib.suppress(AttributeError):
                called(hook, ARGUMENTS[0])  # the first call may register others
        hooks.update(own)
    number = len(hooks)
    for name, hook in hooks.items():
        for arguments in ARGUMENTS:
            held(name, partial(called, hook, arguments), RESULT)
            FAILS.append(True)
            held(f"{name}, which raises", partial(called, hook, arguments), EngineError)
            FAILS.clear()
    handed = [one for one in HOOKS if "ckptbench_probe" in getattr(one, "__module__", "")]
    for hook in handed:
        held(hook.__qualname__, partial(called, hook, (Hostile(), (), {})), None)
    for name, call in others().items():
        held(name, call, None)
    PROCESS.updates.moments.append(1)
    held("the end of the process", harmless.harmless(PROCESS.close), None)
    print(f"{number} hooks of {len(arm.ENGINES)} modules, and {len(handed)} that were handed over")


def others() -> dict[str, Callable[[], Any]]:
    """Hooks of Python itself."""
    state = {"weight": 1, "other": Hostile()}

    def pool() -> None:
        with ThreadPoolExecutor(1) as own:
            own.submit(lambda: state).result()

    def thread() -> None:
        own = threading.Thread(target=lambda: state)
        own.start()
        own.join()

    def file() -> None:
        with open("/dev/null", "wb"):
            pass

    return {
        "pool": pool,
        "thread": thread,
        "queue": lambda: queue.Queue().put(state),
        "simple queue": lambda: queue.SimpleQueue().put(state),
        "file": file,
    }


main()
