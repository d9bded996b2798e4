"""Make the mutants of one module: the operators of cosmic-ray that make sense here, and the loss of a statement.

Only bodies of functions change: the value of a constant is a choice, and a test that repeats it proves nothing.
A mutant that differs in nothing but an annotation, a docstring, a log line, the text of an error or what `zip` checks is none.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import parso.python.tree as parsed
import parso.tree
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators import (
    binary_operator_replacement,
    boolean_replacer,
    break_continue,
    comparison_operator_replacement,
    exception_replacer,
    number_replacer,
    unary_operator_replacement,
    zero_iteration_for_loop,
)
from cosmic_ray.operators.operator import Operator

COMPARISONS = (  # each bound moved by one, each answer turned round; the other pairs add time and find nothing more
    "Eq_NotEq",
    "NotEq_Eq",
    "Lt_LtE",
    "Lt_GtE",
    "LtE_Lt",
    "LtE_Gt",
    "Gt_GtE",
    "Gt_LtE",
    "GtE_Gt",
    "GtE_Lt",
    "Is_IsNot",
    "IsNot_Is",
)
ARITHMETIC = ("Add_Sub", "Sub_Add", "Mul_Add", "Div_Mul", "FloorDiv_Mul", "Mod_Add", "BitOr_BitAnd", "BitAnd_BitOr")
KEPT_STATEMENTS = (parsed.Import, parsed.GlobalStmt, parsed.Keyword)  # a bare keyword: pass, break, continue


# At the end of a function the first two change nothing, and elsewhere another operator is at work; without `super` the closure differs.
KEPT_TEXTS = ("return False", "return None", "super().")


class RemoveStatement(Operator):  # type: ignore[misc] # cosmic-ray is not typed
    """Replace a call, an assignment, a `return` or a `raise` of a function by `pass`: a check that nobody misses is the worst survivor."""

    def mutation_positions(self, node: Any) -> Iterator[Any]:
        if node.type == "simple_stmt" and parso.tree.search_ancestor(node, "funcdef") is not None:
            first = node.children[0]
            if not isinstance(first, KEPT_STATEMENTS) and not first.get_code().strip().startswith(KEPT_TEXTS):
                yield (first.start_pos, first.end_pos)

    def mutate(self, node: Any, index: int) -> Any:
        """Keep the number of lines, so that a traceback of a mutant names the right ones."""
        first = node.children[0]
        lines = first.end_pos[0] - first.start_pos[0]
        prefix = first.get_first_leaf().prefix
        node.children[0] = parsed.Keyword("pass" + "\n" * lines, first.start_pos, prefix)
        return node

    @classmethod
    def examples(cls) -> tuple[()]:
        return ()


class ReplaceNotIn(Operator):  # type: ignore[misc]
    """Turn `not in` and `in` round: the comparisons that cosmic-ray leaves alone."""

    def mutation_positions(self, node: Any) -> Iterator[Any]:
        if node.type == "comparison":
            for one in node.children[1::2]:
                if one.get_code().split() in (["in"], ["not", "in"]):
                    yield (one.start_pos, one.end_pos)

    def mutate(self, node: Any, index: int) -> Any:
        at = [at for at in range(1, len(node.children), 2) if "in" in node.children[at].get_code().split()][index]
        turned = " in" if "not" in node.children[at].get_code().split() else " not in"
        node.children[at] = parsed.Keyword(turned, node.children[at].start_pos)
        return node

    @classmethod
    def examples(cls) -> tuple[()]:
        return ()


def _operators() -> list[Operator]:
    named = [getattr(comparison_operator_replacement, f"ReplaceComparisonOperator_{pair}") for pair in COMPARISONS]
    named += [getattr(binary_operator_replacement, f"ReplaceBinaryOperator_{pair}") for pair in ARITHMETIC]
    named += [
        unary_operator_replacement.ReplaceUnaryOperator_Delete_Not,
        boolean_replacer.AddNot,
        boolean_replacer.ReplaceTrueWithFalse,
        boolean_replacer.ReplaceFalseWithTrue,
        boolean_replacer.ReplaceAndWithOr,
        boolean_replacer.ReplaceOrWithAnd,
        break_continue.ReplaceBreakWithContinue,
        break_continue.ReplaceContinueWithBreak,
        exception_replacer.ExceptionReplacer,
        number_replacer.NumberReplacer,
        zero_iteration_for_loop.ZeroIterationForLoop,
        ReplaceNotIn,
        RemoveStatement,
    ]
    return [operator() for operator in named]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one function of a module, by the function's qualified name.

    `source`: the whole module with it; `body`: what the function does now.
    """

    line: int
    function: str
    before: str
    after: str
    source: str
    body: str


def mutants_of(source: str) -> list[Mutant]:
    """Return every mutant of a module, in the order of its lines, each change once."""
    original = _Outline(source)
    nodes = list(ast_nodes(get_ast(source)))
    found = {}
    for operator in _operators():
        count = sum(1 for node in nodes for _ in operator.mutation_positions(node))
        for occurrence in range(count):
            changed = mutate_code(source, operator, occurrence)
            if changed is not None and changed not in found and (mutant := _mutant(original, changed)):
                found[changed] = mutant
    return sorted(found.values(), key=lambda mutant: (mutant.line, mutant.after))


def _mutant(original: _Outline, changed: str) -> Mutant | None:
    try:
        outline = _Outline(changed)
    except SyntaxError:
        return None
    function = original.difference(outline)
    if function is None:
        return None
    pairs = enumerate(zip(original.source.splitlines(), changed.splitlines(), strict=True), 1)
    line, before, after = next((line, was.strip(), now.strip()) for line, (was, now) in pairs if was != now)
    return Mutant(line, function, before, after, changed, outline.functions[function])


class _Outline:
    """The functions of a module, without what no test should hold."""

    def __init__(self, source: str) -> None:
        self.source = source
        tree = ast.parse(source)
        _Silenced().visit(tree)
        self.functions: dict[str, str] = {}
        self._collect(tree, "")

    def _collect(self, node: ast.Module | ast.ClassDef, prefix: str) -> None:
        for one in node.body:
            if isinstance(one, ast.ClassDef):
                self._collect(one, f"{prefix}{one.name}.")
            elif isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.functions[f"{prefix}{one.name}"] = "".join(map(ast.dump, one.body))

    def difference(self, other: _Outline) -> str | None:
        """Return the function whose body differs, if there is one."""
        return next((name for name, text in self.functions.items() if other.functions[name] != text), None)


class _Silenced(ast.NodeTransformer):
    """Take out annotations, decorators, docstrings, log lines, texts that are put together, and the assertion `strict` of `zip`."""

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        node.decorator_list = []
        self.generic_visit(node)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.returns, node.decorator_list = None, []
        self.generic_visit(node)
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AsyncFunctionDef:
        node.returns, node.decorator_list = None, []
        self.generic_visit(node)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:
        node.annotation = ast.Constant(None)
        self.generic_visit(node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        node.keywords = [each for each in node.keywords if each.arg != "strict"]
        self.generic_visit(node)
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.Constant:
        return ast.Constant("")

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        if isinstance(node.value, ast.Constant) or _is_log_line(node.value):
            return ast.Pass()
        self.generic_visit(node)
        return node


def _is_log_line(call: ast.expr) -> bool:
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return False
    return isinstance(call.func.value, ast.Name) and call.func.value.id in ("log", "_log")
