"""The formulas of `decide/formulas.py` in JavaScript, so that the model is written once.

That file is written in a small part of Python, which is all that is translated here. Anything else is refused with its line.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ckptbench.common.errors import ConfigError

OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**"}
SIGNS = {ast.UAdd: "+", ast.USub: "-"}
COMPARISONS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "===", ast.NotEq: "!=="}  # fmt: skip
CALLS = {
    "exp": "Math.exp", "expm1": "Math.expm1", "log": "Math.log", "log1p": "Math.log1p", "sqrt": "Math.sqrt", "maximum": "Math.max",
    "minimum": "Math.min", "floor": "Math.floor", "ceil": "Math.ceil", "abs": "Math.abs",
}  # fmt: skip
"""Functions of NumPy. `np.where` is translated too."""
TYPES = "Floats"
"""The alias of the types of all arguments and results, which JavaScript does not have."""


def javascript(source: str, name: str) -> str:
    """An object `formulas` with the functions and constants of the Python `source`, for single numbers in place of arrays.

    Raises ConfigError with the file `name` and the line of what is not translated.
    """
    return _Translation(name).module(ast.parse(source))


class _Translation:
    def __init__(self, name: str) -> None:
        self._name = name
        self._known: set[str] = set()

    def module(self, tree: ast.Module) -> str:
        functions = [each for each in tree.body if isinstance(each, ast.FunctionDef)]
        self._known = {each.name for each in functions}
        parts, exported = [], []
        for each in tree.body:
            match each:
                case ast.Expr(value=ast.Constant(value=str())) | ast.Import() | ast.ImportFrom():
                    continue
                case ast.Assign(targets=[ast.Name(id=name)]) if name == TYPES:
                    continue
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    parts.append(f"const {name} = {self._expression(value, set())};")
                case ast.FunctionDef(name=name):
                    parts.append(self._function(each))
                case _:
                    raise self._refused(each)
            exported.append(name)
            self._known.add(name)
        lines = "\n".join(parts)
        return f'"use strict";\nconst formulas = (() => {{\n{lines}\nreturn {{ {", ".join(exported)} }};\n}})();\n'

    def _function(self, function: ast.FunctionDef) -> str:
        arguments = function.args
        if arguments.posonlyargs or arguments.kwonlyargs or arguments.vararg or arguments.kwarg or arguments.defaults or function.decorator_list:  # fmt: skip
            raise self._refused(function)
        names = [each.arg for each in arguments.args]
        local = set(names)
        body = []
        for place, each in enumerate(function.body):
            match each:
                case ast.Expr(value=ast.Constant(value=str())) if place == 0:
                    continue
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if name not in local:
                    body.append(f"  const {name} = {self._expression(value, local)};")
                    local.add(name)
                case ast.Return(value=ast.expr() as value) if each is function.body[-1]:
                    body.append(f"  return {self._expression(value, local)};")
                case _:
                    raise self._refused(each)
        return "\n".join([f"function {function.name}({', '.join(names)}) {{", *body, "}"])

    def _expression(self, node: ast.expr, local: set[str]) -> str:
        def of(each: ast.expr) -> str:
            return self._expression(each, local)

        match node:
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                return repr(value)
            case ast.Name(id=name) if name in local | self._known:
                return name
            case ast.Attribute(value=ast.Name(id=name), attr=field) if name in local:
                return f"{name}.{field}"
            case ast.UnaryOp(op=op, operand=operand) if type(op) in SIGNS:
                return f"({SIGNS[type(op)]}{of(operand)})"
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
                return f"({of(left)} {OPERATORS[type(op)]} {of(right)})"
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARISONS:
                return f"({of(left)} {COMPARISONS[type(op)]} {of(right)})"
            case ast.Call(func=function, args=arguments, keywords=[]):
                return self._call(node, function, [of(each) for each in arguments])
            case _:
                raise self._refused(node)

    def _call(self, node: ast.expr, function: ast.expr, arguments: Sequence[str]) -> str:
        match function:
            case ast.Attribute(value=ast.Name(id="np"), attr="where") if len(arguments) == 3:
                return "({} ? {} : {})".format(*arguments)
            case ast.Attribute(value=ast.Name(id="np"), attr=name) if name in CALLS:
                return f"{CALLS[name]}({', '.join(arguments)})"
            case ast.Name(id=name) if name in self._known:
                return f"{name}({', '.join(arguments)})"
            case _:
                raise self._refused(node)

    def _refused(self, node: ast.stmt | ast.expr) -> ConfigError:
        text = ast.unparse(node).partition("\n")[0]
        return ConfigError(f"{self._name}:{node.lineno}: the page cannot translate {text}: use what formulas.py says of itself")  # fmt: skip
