"""One table of named parts: op families, trace readers, readouts, importers."""

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from gnnperf.errors import GnnperfError, UnknownNameError

T = TypeVar("T")


class Registry(Generic[T]):
    """Named parts of one kind, in the order in which they were registered.

    A part is added beside its definition with `@REGISTRY.register("name")`; a second part of
    the same name is refused, an unknown name is answered with the names that exist.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self._parts: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Add the decorated part under `name`."""

        def add(part: T) -> T:
            if name in self._parts:
                raise GnnperfError(f"two parts of kind {self.what} are named {name!r}")
            self._parts[name] = part
            return part

        return add

    def __getitem__(self, name: str) -> T:
        """Look a part up; raises UnknownNameError with the known names."""
        if name not in self._parts:
            raise UnknownNameError(self.what, name, sorted(self._parts))
        return self._parts[name]

    def __contains__(self, name: object) -> bool:
        return name in self._parts

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def items(self) -> Iterator[tuple[str, T]]:
        """Names and parts in the order of registration."""
        return iter(self._parts.items())
