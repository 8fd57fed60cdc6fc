"""logged, skip, auto_log, auto_log_by_name."""

from __future__ import annotations

import functools
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import logkit
import pytest
from helpers import Probe
from logkit import auto_log, auto_log_by_name, logged, skip


@pytest.fixture
def make_module(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    made: list[str] = []

    def make(name: str, code: str) -> ModuleType:
        module = ModuleType(name)
        sys.modules[name] = module
        made.append(name)
        exec(compile(textwrap.dedent(code), f"{name}.py", "exec"), module.__dict__)
        return module

    yield make
    for name in made:
        del sys.modules[name]


def names(probe: Probe) -> list[str]:
    return [row.function_name.rsplit("<locals>.", 1)[-1] for row in probe.rows]


def test_logged_bare_and_called(probe: Probe):
    logkit.set_default_logger(probe.logger)

    @logged
    class Bare:
        def work(self) -> int:
            return 1

    @logged(level="WARNING", max_repr_length=5)
    class Called:
        def work(self) -> str:
            return "123456789"

    assert Bare().work() == 1 and Called().work() == "123456789"
    assert isinstance(Bare, type) and Bare.__name__ == "Bare"
    assert [row.level for row in probe.rows] == ["DEBUG", "WARNING"]
    assert probe.rows[1].return_value == "'1234... [truncated 6 chars]"


def test_logged_takes_own_public_functions_only(probe: Probe):
    class Base:
        def inherited(self) -> int:
            return 1

    @logged(logger=probe.logger)
    class Tools(Base):
        def __init__(self) -> None:
            self.ready = True

        def public(self) -> int:
            return self._private()

        def _private(self) -> int:
            return 2

        @skip
        def left_out(self) -> int:
            return 3

        @property
        def size(self) -> int:
            return 4

        def __len__(self) -> int:
            return 5

        factor = 6

        class Inner:
            pass

    tools = Tools()
    assert (tools.inherited(), tools.public(), tools.left_out(), tools.size, len(tools)) == (1, 2, 3, 4, 5)
    assert "inherited" not in Tools.__dict__
    assert names(probe) == ["Tools.public"]


def test_logged_async_methods_and_generators(probe: Probe):
    import asyncio

    @logged(logger=probe.logger)
    class Tools:
        async def fetch(self) -> int:
            return 1

        def count(self) -> Iterator[int]:
            yield 1

        @staticmethod
        async def still() -> int:
            return 2

    assert asyncio.run(Tools().fetch()) == 1
    assert list(Tools().count()) == [1]
    assert asyncio.run(Tools.still()) == 2
    assert names(probe) == ["Tools.fetch", "Tools.count", "Tools.still"]


def test_logged_reraises(probe: Probe):
    @logged(logger=probe.logger)
    class Tools:
        def fail(self) -> None:
            raise ValueError("bad")

    with pytest.raises(ValueError, match="bad"):
        Tools().fail()
    assert probe.row.level == "ERROR"


def test_logged_leaves_alone_what_is_logged_already(probe: Probe):
    @logged(logger=probe.logger)
    class Tools:
        @logkit.log_call(logger=probe.logger, name="own")
        def work(self) -> int:
            return 1

    assert Tools().work() == 1
    assert probe.row.function_name == "own"


def test_logged_classes_keep_slots_subclasses_and_super(probe: Probe):
    @logged(logger=probe.logger)
    class Base:
        __slots__ = ("n",)

        def work(self) -> int:
            return 1

    class Derived(Base):
        def work(self) -> int:
            return super().work() + 1

    assert Derived().work() == 2
    assert names(probe) == ["Base.work"]


MODULE = """
    import functools, os.path
    from os.path import join
    from logkit import skip

    class Inner:
        def method(self): return 1

    def public(a): return a + 1
    def calls_other(a): return public(a)
    def _private(a): return a
    def __dunder__(a): return a
    @skip
    def left_out(): return 1
    partial = functools.partial(public, 1)
    builtin = len
    number = 5
    async def coroutine(): return 1
    def generator():
        yield 1
    def fails(): raise ValueError("bad")
"""


def test_auto_log_counts_what_it_wraps(probe: Probe, make_module: Any):
    logkit.set_default_logger(probe.logger)
    module = make_module("auto_one", MODULE)
    inner, joined, partial = module.Inner, module.join, module.partial
    assert auto_log(module) == 5
    assert auto_log(module) == 0
    assert (module.Inner, module.join, module.partial) == (inner, joined, partial)
    assert module.builtin is len
    for name in ("_private", "__dunder__", "left_out"):
        assert not hasattr(getattr(module, name), "__wrapped__"), name
    assert module.calls_other(1) == 2
    assert names(probe) == ["public", "calls_other"]
    assert [row.module for row in probe.rows] == ["auto_one", "auto_one"]


def test_auto_log_can_take_private_functions(probe: Probe, make_module: Any):
    module = make_module("auto_two", MODULE)
    assert auto_log(module, include_private=True, logger=probe.logger, level="INFO") == 6
    assert module._private(1) == 1
    assert probe.row.level == "INFO"
    assert not hasattr(module.__dunder__, "__wrapped__")


def test_auto_log_can_catch(probe: Probe, make_module: Any):
    module = make_module("auto_three", MODULE)
    auto_log(module, catch_exceptions=True, default="none", logger=probe.logger)
    assert module.fails() == "none"
    assert probe.row.level == "ERROR"


def test_auto_log_raises_without_catch(probe: Probe, make_module: Any):
    module = make_module("auto_four", MODULE)
    auto_log(module, logger=probe.logger)
    with pytest.raises(ValueError):
        module.fails()


def test_auto_log_of_several_modules(probe: Probe, make_module: Any):
    one, two = make_module("auto_five", MODULE), make_module("auto_six", "def f(): return 1")
    assert auto_log(one, two, logger=probe.logger, max_repr_length=3) == 6


def test_auto_log_without_modules_takes_that_of_the_caller(probe: Probe, make_module: Any):
    logkit.set_default_logger(probe.logger)
    module = make_module("auto_seven", "import logkit\ndef f(): return 1\nn = logkit.auto_log()\n")
    assert module.n == 1
    module.f()
    assert probe.row.module == "auto_seven"


def test_auto_log_leaves_imported_functions_and_lambdas_alone(probe: Probe, make_module: Any):
    make_module("auto_source", "def f(): return 1\ng = lambda: 2\n")
    module = make_module("auto_user", "from auto_source import f, g\ndef own(): return f() + g()\n")
    f, g = module.f, module.g
    assert auto_log(module, logger=probe.logger) == 1
    assert module.f is f and module.g is g
    assert module.own() == 3
    assert names(probe) == ["own"]


def test_auto_log_by_name(probe: Probe, make_module: Any):
    module = make_module("auto_named", MODULE)
    assert auto_log_by_name("auto_named", "no.such.module", logger=probe.logger) == 5
    assert "no.such.module" not in sys.modules
    assert auto_log_by_name("no.such.module") == 0
    assert module.public(1) == 2
    assert names(probe) == ["public"]


def test_a_module_on_disk(probe: Probe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "on_disk.py").write_text("def f(a):\n    return a * 2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import on_disk  # type: ignore[import-not-found]

    assert auto_log_by_name("on_disk", logger=probe.logger) == 1
    assert on_disk.f(2) == 4
    assert functools.reduce(lambda a, b: a + b, [1, 2]) == 3
    assert names(probe) == ["f"]
    del sys.modules["on_disk"]
