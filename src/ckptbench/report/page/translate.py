"""The formulas of `decide/formulas.py` in JavaScript, so that the model is written once.

An expression of that file is one of JavaScript too, where `np` has NumPy's functions for single numbers, so only definitions are translated. What would mean
something else in JavaScript, or nothing, is refused with its line.
"""

from __future__ import annotations

import ast

from ckptbench.common.errors import ConfigError

NP = {
    **{name: f"Math.{name}" for name in ("exp", "expm1", "log", "log1p", "sqrt", "abs")},
    "maximum": "Math.max",
    "minimum": "Math.min",
    "where": "(test, one, other) => (test ? one : other)",
}  # fmt: skip
ALIKE = (
    ast.Name, ast.Call, ast.expr_context, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.UnaryOp, ast.USub, ast.Compare, ast.Lt, ast.LtE, ast.Gt, ast.GtE,
)  # fmt: skip
"""Parts of expressions that are the same in both languages. Not so `**`: JavaScript refuses `-x ** 2`."""
TYPES = "Floats"
"""The alias of the types of all arguments and results, which JavaScript does not have."""


def javascript(source: str, name: str) -> str:
    """An object `formulas` with the functions and constants of the Python `source`, for single numbers in place of arrays.

    Raises ConfigError with the file `name` and the line of what is not translated.
    """
    lines = ['"use strict";', "const formulas = (() => {"]
    lines.append(f"const np = {{ {', '.join(f'{each}: {own}' for each, own in NP.items())} }};")
    exported = []
    for each in ast.parse(source).body:
        match each:
            case ast.Expr(value=ast.Constant(value=str())) | ast.Import() | ast.ImportFrom():
                continue
            case ast.Assign(targets=[ast.Name(id=known)]) if known == TYPES:
                continue
            case ast.FunctionDef(name=known) if _is_plain(each):
                arguments = ", ".join(argument.arg for argument in each.args.args)
                body = [f"  {_statement(own, name)}" for own in _without_docstring(each)]
                lines += [f"function {known}({arguments}) {{", *body, "}"]
            case ast.Assign(targets=[ast.Name(id=known)]):
                lines.append(_statement(each, name))
            case _:
                raise _refused(each, name)
        exported.append(known)
    return "\n".join([*lines, f"return {{ {', '.join(exported)} }};", "})();", ""])


def _is_plain(function: ast.FunctionDef) -> bool:
    """Whether all arguments are positional, without defaults."""
    plain = ast.arguments([], function.args.args, None, [], [], None, [])
    return ast.dump(function.args) == ast.dump(plain)


def _without_docstring(function: ast.FunctionDef) -> list[ast.stmt]:
    return function.body[1:] if ast.get_docstring(function) else function.body


def _statement(statement: ast.stmt, name: str) -> str:
    match statement:
        case ast.Assign(targets=[ast.Name(id=known)], value=value) if _is_alike(value):
            return f"const {known} = {ast.unparse(value)};"
        case ast.Return(value=ast.expr() as value) if _is_alike(value):
            return f"return {ast.unparse(value)};"
    raise _refused(statement, name)


def _is_alike(expression: ast.expr) -> bool:
    """Whether it means the same in JavaScript."""
    return all(map(_is_alike_alone, ast.walk(expression)))


def _is_alike_alone(node: ast.AST) -> bool:
    match node:
        case ast.Constant(value=value):
            return type(value) in (int, float)
        case ast.Attribute(value=ast.Name(id="np"), attr=function):
            return function in NP
        case ast.Compare(ops=[_, _, *_]):
            return False
    return isinstance(node, ALIKE)


def _refused(statement: ast.stmt, name: str) -> ConfigError:
    text = ast.unparse(statement).partition("\n")[0]
    return ConfigError(f"{name}:{statement.lineno}: the page cannot translate {text}: use what formulas.py says of itself")  # fmt: skip
