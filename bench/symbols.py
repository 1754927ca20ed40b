"""How many private symbols of ansible-core the warm engine uses: `python -m bench.symbols`.

A symbol is a function, class or variable of ansible-core. It is private if a part of its dotted name begins with an
underscore, or if the engine replaces it. The list is made from the engine's code: names that it imports, attributes of
these, and attributes whose owner the code does not name, such as `worker._task`. An owner that is not named is found in
the sources of ansible-core. `python -m bench.symbols list` prints the symbols instead.

`python -m hack.next_core` compares the symbols of two versions.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from bench.results import Result, show

ENGINE = Path(__file__).resolve().parents[1] / "runner/engines/warm"
_CASE = "symbols"
_SHORTCUTS = {
    "event_socket": "events",
    "fact_cache": "facts",
    "guard": "tasks",
    "actions": "tasks",
}
"""Shortcuts of the modules in `patches` that have other names."""
_ACCESSORS = frozenset({"getattr", "hasattr", "setattr", "delattr"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_CODE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def is_private(name: str) -> bool:
    """Return True for a dotted name with a private part."""
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


@dataclass
class Uses:
    """Symbols by the part of the engine that uses them: a shortcut, or `server`."""

    by_part: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    @property
    def all(self) -> set[str]:
        """All symbols: no module whose symbols are listed, and none without an owner if that is known."""
        names = set().union(*self.by_part.values())
        names = {name for name in names if not any(each.startswith(f"{name}.") for each in names)}
        known = {name.rpartition(".")[2] for name in names if not name.startswith("*.")}
        return {name for name in names if not name.startswith("*.") or name[2:] not in known}


def part_of(path: Path) -> str:
    """Return the part of the engine to which a file belongs; `versions` is shared by all."""
    match path.relative_to(ENGINE).parts:
        case ("patches", name):
            stem = name.removesuffix(".py")
            return _SHORTCUTS.get(stem, stem)
        case ("modules", _):
            return "modules"
        case (name,) if name == "versions.py":
            return "versions"
    return "server"


def uses(core: Core) -> Uses:
    """Return the private symbols of an ansible-core that the engine uses."""
    found = Uses()
    shared: dict[str, set[str]] = {}
    calls: dict[str, set[str]] = defaultdict(set)
    for path in sorted(ENGINE.rglob("*.py")):
        tree = ast.parse(path.read_bytes())
        if not _imports_ansible(tree):
            continue  # its private attributes are its own
        if part_of(path) == "versions":
            names = _Names(tree)
            for node in tree.body:
                for name in [node.name] if isinstance(node, _CODE) else [target for target, _ in _pairs(node)]:
                    shared[name] = _symbols(ast.Module([node], []), names, core)
        else:
            found.by_part[part_of(path)] |= _symbols(tree, _Names(tree), core)
            calls[part_of(path)].update(_attributes_of("versions", tree))
    for part, functions in calls.items():
        found.by_part[part].update(*(shared.get(name, set()) for name in functions))
    return found


def _imports_ansible(tree: ast.AST) -> bool:
    """Return True if a file uses ansible-core, directly or by `versions`."""
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {each.name for node in ast.walk(tree) if isinstance(node, ast.Import) for each in node.names}
    return any(str(module).partition(".")[0] == "ansible" for module in modules) or "versions" in {*_imported(tree)}


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (each.name for each in node.names)


def _attributes_of(name: str, tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=found)) if found == name:
                yield node.attr


class _Names:
    """What the names in a scope stand for: imports of ansible-core, and variables that are set to them."""

    def __init__(self, scope: ast.AST, around: _Names | None = None) -> None:
        self.known: dict[str, str] = {**around.known} if around else {}
        self.own: set[str] = around.own if around else {*_defined(scope)}
        for node in _walk(scope):
            if isinstance(node, ast.Import):
                for each in node.names:
                    self._add(each.asname or each.name, each.name)
            elif isinstance(node, ast.ImportFrom) and not node.level:
                for each in node.names:
                    self._add(each.asname or each.name, f"{node.module}.{each.name}")
        for node in _walk(scope):
            for target, value in _pairs(node):
                self._add(target, self.of(value))

    def _add(self, name: str, of: str) -> None:
        self.known.pop(name, None)
        if of.partition(".")[0] == "ansible":
            self.known[name] = of

    def of(self, node: ast.AST) -> str:
        """Return the dotted name of an expression; empty if it is not of ansible-core."""
        if isinstance(node, ast.Name):
            return self.known.get(node.id, "")
        if isinstance(node, ast.Attribute):
            owner = self.of(node.value)
            return f"{owner}.{node.attr}" if owner else ""
        return ""


def _walk(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a scope in the order of the code, without those of functions in it."""
    for node in ast.iter_child_nodes(scope):
        yield node
        if not isinstance(node, _FUNCTIONS):
            yield from _walk(node)


def _defined(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a file defines for itself."""
    for node in ast.walk(tree):
        if isinstance(node, _CODE):
            yield node.name
        elif isinstance(node, ast.Attribute) and _is_own(node):
            yield node.attr


def _is_own(node: ast.Attribute) -> bool:
    """Return True for an attribute that the file's own objects get."""
    return isinstance(node.ctx, ast.Store) and _is_self(node)


def _is_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}


def _pairs(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield variables and their values, also of several in one statement."""
    match node:
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            yield name, value
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                if isinstance(target, ast.Name):
                    yield target.id, value
                elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                    pairs = zip(target.elts, value.elts, strict=False)
                    yield from ((each.id, part) for each, part in pairs if isinstance(each, ast.Name))


def _symbols(scope: ast.AST, names: _Names, core: Core) -> set[str]:
    """Return the symbols in a scope and in the functions in it."""
    found: set[str] = set()
    inner: set[ast.AST] = set()
    for node in _walk(scope):
        if isinstance(node, _FUNCTIONS):
            found |= _symbols(node, _Names(node, names), core)
        elif isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "ansible":
            found |= {name for each in node.names if is_private(name := f"{node.module}.{each.name}")}
        elif isinstance(node, ast.Attribute):
            name = names.of(node)
            if name and node not in inner and (isinstance(node.ctx, ast.Store) or is_private(name)):
                found.add(name)
            elif not name and is_private(node.attr) and not (_is_self(node) and node.attr in names.own):
                found |= core.anywhere(node.attr)
            inner.add(node.value)
        elif isinstance(node, ast.Call):
            for attribute in _by_name(node):
                found |= core.anywhere(attribute)
    return {core.existing(core.resolve(name)) for name in found}


def _by_name(call: ast.Call) -> Iterator[str]:
    """Yield private attributes that are accessed by a name in a string, or as an entry of `__dict__`."""
    match call:
        case ast.Call(func=ast.Name(id=function), args=[_, ast.Constant(value=str(name)), *_]):
            if function in _ACCESSORS and is_private(name):
                yield name
        case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="__dict__"))):
            yield from (each.arg for each in call.keywords if each.arg and is_private(each.arg))


@dataclass(frozen=True, slots=True)
class Definition:
    """Where ansible-core defines a symbol."""

    signature: str
    """Empty for a variable."""
    digest: str
    """Of the code without comments and documentation; empty for a variable that objects get."""


class Core:
    """The sources of an ansible-core."""

    def __init__(self, package: Path) -> None:
        """Read the sources in a folder `ansible`."""
        self._package = package

    @classmethod
    def installed(cls) -> Core:
        """Return the ansible-core of this environment."""
        spec = find_spec("ansible")
        if spec is None or spec.origin is None:
            raise RuntimeError("ansible-core is not installed")
        return cls(Path(spec.origin).parent)

    def anywhere(self, attribute: str) -> set[str]:
        """Return the symbol for an attribute whose owner is unknown; none if ansible-core has no such attribute."""
        return {f"*.{attribute}"} if attribute in self._attributes else set()

    def resolve(self, name: str) -> str:
        """Return the name under which ansible-core defines a symbol that it may also import elsewhere."""
        module, rest = self._split(name)
        if module is None or not rest:
            return name
        for node in ast.walk(self._tree(module)):
            if isinstance(node, ast.ImportFrom) and not node.level:
                for each in node.names:
                    if (each.asname or each.name) == rest[0] and str(node.module).startswith("ansible."):
                        return self.resolve(".".join((str(node.module), each.name, *rest[1:])))
        return name

    def existing(self, name: str) -> str:
        """Return a symbol without attributes that other libraries define, such as those of a dictionary."""
        owner = name.rpartition(".")[0]
        while (
            is_private(owner) and not name.startswith("*.") and not self.definitions(name) and self.definitions(owner)
        ):
            name, owner = owner, owner.rpartition(".")[0]
        return name

    def definitions(self, name: str) -> list[Definition]:
        """Return the definitions of a symbol: several if its owner is unknown, none if it does not exist."""
        if name.startswith("*."):
            return self._attributes.get(name[2:], [])
        module, rest = self._split(name)
        if module is None:
            return []
        if not rest:
            return [_definition(self._tree(module))]
        found = _members(self._tree(module)).get(rest[0], [])
        for part in rest[1:]:
            if not is_private(part) and not any(isinstance(node, ast.ClassDef) for node in found):
                return [Definition("", "")]  # a method of an object, whose class the code does not name
            inner = [each for node in found if isinstance(node, ast.ClassDef) for each in _members(node).get(part, [])]
            found = inner or self._attributes_as_nodes(part)
        return [_definition(node) for node in found]

    def _attributes_as_nodes(self, name: str) -> list[ast.AST]:
        return [node for module in self._trees.values() for node in _all_members(module).get(name, [])]

    def _split(self, name: str) -> tuple[str | None, list[str]]:
        """Return the module of a dotted name, and the rest of it."""
        parts = name.split(".")
        for length in range(len(parts), 0, -1):
            module = ".".join(parts[:length])
            if module in self._trees:
                return module, parts[length:]
        return None, []

    def _tree(self, module: str) -> ast.Module:
        return self._trees[module]

    @functools.cached_property
    def _trees(self) -> Mapping[str, ast.Module]:
        found = {}
        for path in sorted(self._package.rglob("*.py")):
            relative = path.relative_to(self._package.parent).with_suffix("")
            if relative.parts[1:2] in {("modules",), ("galaxy",), ("compat",)}:
                continue
            name = ".".join(relative.parts).removesuffix(".__init__")
            found[name] = _without_documentation(ast.parse(path.read_bytes()))
        return found

    @functools.cached_property
    def _attributes(self) -> Mapping[str, list[Definition]]:
        found: dict[str, list[Definition]] = defaultdict(list)
        for tree in self._trees.values():
            for name, nodes in _all_members(tree).items():
                if is_private(name):
                    found[name] += [_definition(node) for node in nodes]
        return found


def _members(tree: ast.Module | ast.ClassDef) -> Mapping[str, list[ast.AST]]:
    """Return what a module or class defines, by name."""
    found: dict[str, list[ast.AST]] = defaultdict(list)
    for node in ast.walk(tree) if isinstance(tree, ast.Module) else tree.body:
        if isinstance(node, _CODE):
            found[node.name].append(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target, _ in _pairs(node):
                found[target].append(node)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_own(node):
            found[node.attr].append(node)
    return found


@functools.cache
def _all_members(tree: ast.Module) -> Mapping[str, list[ast.AST]]:
    return _members(tree)


def _definition(node: ast.AST) -> Definition:
    if isinstance(node, ast.Attribute):
        return Definition("", "")
    signature = ast.unparse(node.args) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else ""
    return Definition(f"({signature})" if signature else "", hashlib.sha256(ast.dump(node).encode()).hexdigest()[:12])


def _without_documentation(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node
        ):
            del node.body[0]
    return tree


def main() -> None:
    """Print the number of symbols of the installed ansible-core, or the symbols."""
    core = Core.installed()
    found = uses(core)
    if sys.argv[1:] == ["list"]:
        for part, symbols in sorted(found.by_part.items()):
            for name in sorted(symbols):
                print(part, name)
        return
    existing = {name for name in found.all if core.definitions(name)}
    show(Result(_CASE, "private symbols of ansible-core that the warm engine uses", len(existing), "symbols"))


if __name__ == "__main__":
    main()
