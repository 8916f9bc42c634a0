"""Configs: frozen dataclass groups read from YAML, unknown keys and wrong types refused."""

from dataclasses import fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import yaml

from gnnperf.errors import InputError

C = TypeVar("C")

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The safe loader, in C where PyYAML was built with it: ten times as fast."""


def read_yaml(path: str | Path) -> dict[str, Any]:
    """The mapping at the top of a YAML file.

    Raises:
        InputError: The file is absent, is no YAML, or holds no mapping.
    """
    try:
        data = yaml.load(Path(path).read_text(encoding="utf-8"), Loader=_LOADER)  # noqa: S506
    except OSError as why:
        raise InputError(why.strerror or str(why), path=path) from why
    except (UnicodeDecodeError, yaml.YAMLError) as why:
        raise InputError(f"not YAML ({why})", path=path, remedy="give a YAML file") from why
    if not isinstance(data, dict):
        raise InputError("no mapping at the top", path=path, remedy="write `key: value` lines")
    return data


def from_mapping(cls: type[C], data: dict[str, Any], path: str | Path, prefix: str = "") -> C:
    """Build a dataclass from a mapping, strictly, group by group.

    Raises:
        InputError: An unknown key, a missing key or a value of another type; names the key.
    """
    hints = get_type_hints(cls)
    known = {f.name for f in fields(cls)}  # type: ignore[arg-type]
    for key in data:
        if key not in known:
            raise InputError(
                "unknown key", path=path, field=f"{prefix}{key}", remedy=f"known: {sorted(known)}"
            )
    values = {k: _value(hints[k], v, path, f"{prefix}{k}") for k, v in data.items()}
    try:
        return cls(**values)
    except TypeError as why:
        raise InputError(str(why).split("() ")[-1], path=path, field=prefix or None) from why
    except ValueError as why:
        raise InputError(str(why), path=path, field=prefix or None) from why


def _value(hint: Any, value: Any, path: str | Path, key: str) -> Any:  # noqa: ANN401
    if isinstance(value, dict) and get_origin(hint) is UnionType:
        hint = next((a for a in get_args(hint) if is_dataclass(a)), hint)
    if is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(value, dict):
            raise InputError("expected a group of keys", path=path, field=key)
        return from_mapping(hint, value, path, f"{key}.")
    origin, args = get_origin(hint), get_args(hint)
    if origin is tuple and isinstance(value, list):
        return tuple(_value(args[0], v, path, f"{key}[{i}]") for i, v in enumerate(value))
    if origin is dict and isinstance(value, dict):
        return {str(k): _value(args[1], v, path, f"{key}.{k}") for k, v in value.items()}
    accepted = args if origin is not None and origin not in (tuple, dict) else (hint,)
    if float in accepted and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    plain = tuple(a for a in accepted if isinstance(a, type))
    if isinstance(value, plain) and not (isinstance(value, bool) and bool not in plain):
        return value
    names = " or ".join(getattr(a, "__name__", str(a)) for a in accepted)
    raise InputError(
        f"expected {names}, got {value!r}",
        path=path,
        field=key,
        remedy="numbers like 1e-3 need a dot in YAML (1.0e-3)" if float in accepted else None,
    )


def override(data: dict[str, Any], settings: list[str]) -> dict[str, Any]:
    """A copy of `data` with `group.key=value` settings applied (values read as YAML)."""
    result = {k: dict(v) if isinstance(v, dict) else v for k, v in data.items()}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals:
            raise InputError(f"{setting!r} is no setting", remedy="write group.key=value")
        *groups, last = key.split(".")
        place = result
        for group in groups:
            place = place.setdefault(group, {})
            if not isinstance(place, dict):
                raise InputError(f"{group!r} in {key!r} is no group of keys")
        try:
            place[last] = yaml.safe_load(text)
        except yaml.YAMLError as why:
            raise InputError(f"{text!r} is no YAML value", field=key) from why
    return result
