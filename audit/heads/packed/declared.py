"""What the configuration says about the packing of one layer, read but not believed.

Sources, the first that is there: `quantization_config` (or `compression_config`) of config.json,
`hf_quant_config.json` of ModelOpt, `quantize_config.json` of GPTQ tools, `quant_config.json` of
AutoAWQ. Formats compare it with what is stored and refuse contradictions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from audit.errors import UnreadableError
from audit.files import Container
from audit.files.paths import check_is_file
from audit.files.safetensors_file import parse_json_object

State = Literal["packed", "plain", "unknown"]

_BESIDE = {
    "hf_quant_config.json": "modelopt",
    "quantize_config.json": "gptq",
    "quant_config.json": "awq",
}
_SAME_METHOD = {
    "compressed_tensors": "compressed-tensors", "nvfp4": "modelopt", "bnb": "bitsandbytes",
    "finegrained_fp8": "fp8", "gptq_v2": "gptq", "autoawq": "awq", "fbgemm-fp8": "fbgemm_fp8",
}  # fmt: skip
_LIMIT = 1 << 24
_SKIPPED = ("modules_to_not_convert", "llm_int8_skip_modules", "skip_modules", "ignored_layers")
_PATTERN_LIMIT = 500
_SLOW = re.compile(r"\)[*+{]")
_STAR = re.compile(r"(?<!\\)[*+{]")
_MAX_STARS = 5


@dataclass(frozen=True, slots=True)
class Declared:
    """The configuration's word on one layer."""

    state: State = "unknown"
    method: str = ""
    """Normalised `quant_method`; empty where nothing is declared."""
    format: str = ""
    """`format` or `quant_algo`, lower case."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The settings that hold for this layer."""
    source: str = "the configuration"

    def number(self, *keys: str) -> int | None:
        """The first of the keys that holds an integer."""
        found = (self.settings.get(key) for key in keys)
        return next((v for v in found if isinstance(v, int) and not isinstance(v, bool)), None)

    def flag(self, key: str) -> bool | None:
        """A true or false setting; None when it is not given."""
        value = self.settings.get(key)
        return value if isinstance(value, bool) else None


NOTHING_DECLARED = Declared()


def declared_for(container: Container, stem: str) -> Declared:
    """What the configuration beside `container` says about the layer `stem`."""
    found = _settings(container)
    if found is None:
        return NOTHING_DECLARED
    source, method, settings = found
    state, own = _RULES.get(method, _skip_lists)(stem, settings)
    form = str(own.get("format") or own.get("quant_algo") or settings.get("format") or "")
    return Declared(state, method, form.lower(), own, source)


def _settings(container: Container) -> tuple[str, str, Mapping[str, Any]] | None:
    """Where the settings are, the method, and the settings."""
    config = container.config or {}
    text = config.get("text_config")
    places = [config, text] if isinstance(text, Mapping) else [config]
    for place in places:
        for key in ("quantization_config", "compression_config"):
            settings = place.get(key)
            if isinstance(settings, Mapping) and settings:
                inner = settings.get("quantization_config")  # an older compressed-tensors nests it
                settings = {**inner, **settings} if isinstance(inner, Mapping) else settings
                return f"{key} in config.json", _method(settings), settings
    for name, method in _BESIDE.items():
        settings = _read_beside(container.files[0].parent / name)
        if settings:
            inner = settings.get("quantization")
            return name, method, inner if isinstance(inner, Mapping) else settings
    return None


def _read_beside(path: Path) -> Mapping[str, Any] | None:
    if not path.is_file() and not path.is_symlink():
        return None
    check_is_file(path)
    if path.stat().st_size > _LIMIT:
        raise UnreadableError(f"{path} is larger than {_LIMIT} bytes", where=path)
    return parse_json_object(path, path.read_bytes(), "content")


def _method(settings: Mapping[str, Any]) -> str:
    method = str(settings.get("quant_method") or "").lower()
    if not method and ("load_in_4bit" in settings or "load_in_8bit" in settings):
        return "bitsandbytes"
    if not method and "config_groups" in settings:
        return "compressed-tensors"
    return _SAME_METHOD.get(method, method)


Verdict = tuple[State, Mapping[str, Any]]


def _compressed(stem: str, settings: Mapping[str, Any]) -> Verdict:
    """`ignore` and the targets of `config_groups`: names, `re:` patterns or module classes."""
    if any(_names(pattern, stem) for pattern in _strings(settings.get("ignore"))):
        return "plain", {}
    groups = settings.get("config_groups")
    matched: Mapping[str, Any] | None = None
    for group in (groups or {}).values() if isinstance(groups, Mapping) else ():
        targets = list(_strings(group.get("targets"))) if isinstance(group, Mapping) else []
        if any(_names(target, stem) for target in targets):
            matched = group
            break
        if "Linear" in targets and not _is_embedding(stem):
            matched = matched or group
    if matched is None:
        return "unknown", {}
    weights = matched.get("weights")
    own = dict(weights) if isinstance(weights, Mapping) else {}
    return "packed", own | ({"format": matched["format"]} if matched.get("format") else {})


def _modelopt(stem: str, settings: Mapping[str, Any]) -> Verdict:
    """Wildcards of excluded modules; mixed precision lists every layer."""
    if "config_groups" in settings and not settings.get("quant_algo"):
        return _compressed(stem, settings)
    skipped = [*_strings(settings.get("exclude_modules")), *_strings(settings.get("ignore"))]
    if any(_names(pattern, stem) for pattern in skipped):
        return "plain", {}
    layers = settings.get("quantized_layers")
    if isinstance(layers, Mapping) and layers:
        own = next((v for k, v in layers.items() if _same(k, stem)), None)
        return ("packed", {**settings, **own}) if isinstance(own, Mapping) else ("plain", {})
    if not settings.get("quant_algo") or _is_embedding(stem):
        return "unknown", settings
    return "packed", settings


def _gptq(stem: str, settings: Mapping[str, Any]) -> Verdict:
    """`dynamic` overrides by pattern, and the head only where `lm_head` is true."""
    own = dict(settings)
    dynamic = settings.get("dynamic")
    for pattern, change in dynamic.items() if isinstance(dynamic, Mapping) else ():
        if _matches(re.sub(r"^[+-]:", "", str(pattern)), stem):
            if str(pattern).startswith("-:"):
                return "plain", {}
            own |= change if isinstance(change, Mapping) else {}
            return "packed", own
    if _leaf(stem) == "lm_head" and "lm_head" in settings:
        return ("packed" if settings["lm_head"] else "plain"), own
    return "unknown", own


def _skip_lists(stem: str, settings: Mapping[str, Any]) -> Verdict:
    """All others list what they leave plain, as parts of names."""
    for key in _SKIPPED:
        for part in _strings(settings.get(key)):
            if _names(part, stem) or f".{part}." in f".{_plain(stem)}.":
                return "plain", settings
    return "unknown", settings


_RULES = {
    "compressed-tensors": _compressed,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
    "gptq": _gptq,
}


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, list | tuple):
        yield from (item for item in value if isinstance(item, str))


def _names(pattern: str, stem: str) -> bool:
    """Whether a name, a `re:` pattern or a wildcard means this layer."""
    if pattern.startswith("re:"):
        return _matches(pattern[3:], stem)
    if "*" in pattern or "?" in pattern:
        return fnmatchcase(stem, pattern) or fnmatchcase(_plain(stem), pattern)
    return _same(pattern, stem)


def _matches(pattern: str, stem: str) -> bool:
    """A regular expression at the start of the name, as these tools match."""
    # A file must not be able to keep us busy for years: no nested repeats, and few of them.
    slow = _SLOW.search(pattern) or len(_STAR.findall(pattern)) > _MAX_STARS
    try:
        found = None if slow or len(pattern) > _PATTERN_LIMIT else re.compile(pattern)
    except re.error:
        found = None
    if found is None:
        raise UnreadableError(
            f"the configuration holds the module pattern {ascii(pattern)[:60]}, which is not one "
            "or could take too long to match",
            hint="name the modules of the quantization configuration by simpler patterns",
        )
    return any(found.match(name) is not None for name in {stem, _plain(stem)})


def _plain(stem: str) -> str:
    """Without the prefixes that differ between saves of one model."""
    return stem.replace("language_model.", "").removeprefix("model.")


def _same(name: str, stem: str) -> bool:
    return _plain(name) == _plain(stem)


def _leaf(stem: str) -> str:
    return stem.rpartition(".")[2]


def _is_embedding(stem: str) -> bool:
    return "embed" in _leaf(stem) or _leaf(stem) in ("wte", "embed_in")
