"""Finds iteration over sets, whose order is no part of a program's meaning, in a syntax tree.

A name counts as a set when the same function annotates it as one or assigns one to it, an
attribute when anything in the same file does. Sets that arrive from elsewhere are not seen.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

_SET_TYPES = {"set", "frozenset", "Set", "AbstractSet", "MutableSet"}
_SET_METHODS = {"union", "intersection", "difference", "symmetric_difference", "copy"}
# What these return depends on the order in which they are given things.
_ORDERED = {"list", "tuple", "enumerate", "iter", "next", "zip", "map", "filter", "join", "extend"}
# What these return does not, so a generator that feeds them may run over a set.
_UNORDERED = {"set", "frozenset", "sorted", "any", "all", "min", "max", "len"}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def set_iterations(tree: ast.Module) -> list[int]:
    """Return the lines on which a set is iterated, in order."""
    finder = _Finder(_set_attributes(tree))
    finder.visit(tree)
    return sorted(finder.lines)


class _Finder(ast.NodeVisitor):
    def __init__(self, attributes: set[str]) -> None:
        self.attributes = attributes
        self.names: set[str] = set()
        self.lines: list[int] = []

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        outer, self.names = self.names, self.names | _set_names(node)
        self.generic_visit(node)
        self.names = outer

    visit_FunctionDef = visit_AsyncFunctionDef = _visit_function

    def visit_For(self, node: ast.For) -> None:
        self._check(node.iter)
        self.generic_visit(node)

    def visit_Starred(self, node: ast.Starred) -> None:
        self._check(node.value)
        self.generic_visit(node)

    def visit_Set(self, node: ast.Set) -> None:
        for element in node.elts:  # {*a, *b} is a set again, so the order is lost anyway
            self.visit(element.value if isinstance(element, ast.Starred) else element)

    def _visit_comprehension(self, node: ast.ListComp | ast.DictComp | ast.GeneratorExp) -> None:
        for generator in node.generators:
            self._check(generator.iter)
        self.generic_visit(node)

    visit_ListComp = visit_DictComp = visit_GeneratorExp = _visit_comprehension

    def visit_Call(self, node: ast.Call) -> None:
        called = _called_name(node)
        if called in _ORDERED:
            for argument in node.args:
                self._check(argument)
        if called == "pop" and not node.args and isinstance(node.func, ast.Attribute):
            self._check(node.func.value)
        for child in ast.iter_child_nodes(node):
            if called in _UNORDERED and isinstance(child, ast.GeneratorExp):
                self.generic_visit(child)
            else:
                self.visit(child)

    def _check(self, node: ast.expr) -> None:
        if self._is_set(node):
            self.lines.append(node.lineno)

    def _is_set(self, node: ast.expr) -> bool:
        match node:
            case ast.Name(id=name):
                return name in self.names
            case ast.Attribute(attr=attribute):
                return attribute in self.attributes
            case ast.BinOp(op=ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor()):
                return any(self._is_set(side) or _is_keys(side) for side in (node.left, node.right))
            case ast.Call(func=ast.Attribute(value=owner, attr=method)) if method in _SET_METHODS:
                return self._is_set(owner)
        return _makes_set(node)


def _makes_set(node: ast.expr | None) -> bool:
    """Return whether the expression by itself says that it is a set."""
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Call(func=ast.Name(id=name)):
            factories = [word.value for word in node.keywords if word.arg == "default_factory"]
            return name in {"set", "frozenset"} or any(map(_names_set_type, factories))
    return False


def _is_keys(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and _called_name(node) == "keys"


def _called_name(node: ast.Call) -> str:
    match node.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _names_set_type(node: ast.expr | None) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in _SET_TYPES
        case ast.Subscript(value=base):
            return _names_set_type(base)
        case ast.BinOp(op=ast.BitOr(), left=left, right=right):  # set[str] | None
            return _names_set_type(left) or _names_set_type(right)
    return False


def _set_names(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    names = {argument.arg for argument in every if _names_set_type(argument.annotation)}
    return names | {
        target.id for target in _set_targets(function, nested=False) if isinstance(target, ast.Name)
    }


def _set_attributes(tree: ast.Module) -> set[str]:
    found = set()
    for target in _set_targets(tree, nested=True):
        if isinstance(target, ast.Attribute):
            found.add(target.attr)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            fields = _set_targets(node, nested=False)
            found |= {field.id for field in fields if isinstance(field, ast.Name)}
    return found


def _set_targets(scope: ast.AST, nested: bool) -> Iterator[ast.expr]:
    """Yield what is assigned or annotated as a set in ``scope``, or also in scopes inside it."""
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, ast.AnnAssign):
            if _names_set_type(node.annotation) or _makes_set(node.value):
                yield node.target
        elif isinstance(node, ast.Assign) and _makes_set(node.value):
            yield from node.targets
        if nested or not isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            yield from _set_targets(node, nested)
