"""Rows of a table of measured iterations: what they say of model, plan, device and time."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gnnperf.analytic.plan_model import (
    Plan,
    Transformer,
    model_key,
    published_models,
    shape_of_size,
)
from gnnperf.analytic.wiring import described_platform
from gnnperf.errors import InputError
from gnnperf.hardware import Hardware, Platform, find_hardware

Row = Mapping[str, Any]
SHAPE_FROM_SIZE = "plan, shape from size"
"""`how` of a plan whose table tells only the model's number of parameters"""

_NOT_TRANSFORMERS = (
    "resnet",
    "vgg",
    "inception",
    "dlrm",
    "wide&deep",
    "widedeep",
    "unet",
    "retina",
)
_OTHER_NAMES = {"recompute": "activation_recompute", "iter_s": "iteration_ms", "id": "row_id"}


@dataclass(frozen=True)
class PlanRow:
    """One row, understood."""

    id: str
    source: str
    hardware: Hardware
    platform: Platform
    plan: Plan
    model: Transformer
    how: str
    """plan, or `plan, shape from size`"""


def stated_us(row: Row) -> float:
    """The iteration time that a row states, in us; nan where it states none."""
    if row.get("iteration_ms") not in (None, ""):
        return number(row, "iteration_ms") * 1e3
    return number(row, "iter_s") * 1e6


def not_scored(row: Row) -> str:
    """Why a row's time is no measurement to be scored; empty where it is one."""
    how = str(row.get("iteration_ms_how") or row.get("measured") or "")
    reasons = {
        "no iteration time": not stated_us(row) > 0,
        "time derived, not measured": "derived" in how or "tokens/s" in how or not how,
        f"status {row.get('status')}": row.get("status") not in (None, "", "ok"),
        "time flagged as wrong by the table": "swapped" in str(row.get("flag") or ""),
        "same measurement as an earlier row": str(row.get("duplicate_of_earlier")) == "True",
        "composed by a formula, not measured": "ground_truth_single" in str(row.get("source")),
    }
    return next((why for why, holds in reasons.items() if holds), "")


def source_of(row: Row) -> str:
    """A short name of where a row comes from, for errors by source."""
    if row.get("set"):
        return str(row["set"])
    name = str(row.get("row_id") or row.get("id") or "")
    return re.sub(r"-?[a-z]?\d+$", "", name) or str(row.get("source") or "unnamed")[:40]


def read_plan_row(row: Row) -> PlanRow:
    """What a row says, in both layouts of the tables; gaps filled by the rules of the docs.

    Raises:
        InputError: The device is unknown, the model no transformer, or a figure is missing.
    """
    gpu, model_name = str(row.get("gpu") or ""), str(row.get("model") or "")
    hardware = find_hardware(gpu)
    if hardware is None:
        raise InputError(f"unknown gpu {gpu}")
    if any(word in model_name.lower() for word in _NOT_TRANSFORMERS):
        raise InputError(f"no transformer: {model_name}")
    plan = _plan(row)
    model, how = _model(row, model_name, plan)
    words = f"{gpu} {row.get('interconnect') or ''}"
    platform = described_platform(hardware, words)
    nodes = number(row, "nodes", 0)
    if nodes >= 1 and plan.gpus % nodes == 0:
        per_node = round(plan.gpus / nodes)
        platform = replace(platform, gpus_per_node=max(per_node, 1))
    name = str(row.get("row_id") or row.get("id") or "")
    return PlanRow(name, source_of(row), hardware, platform, plan, model, how)


def number(row: Row, name: str, default: float | None = None) -> float:
    """A number of a row; nan or the default where the field is absent or empty.

    Raises:
        InputError: The field holds something else.
    """
    text = row.get(name)
    if text is None or text == "" or (isinstance(text, float) and math.isnan(text)):
        return math.nan if default is None else default
    try:
        return float(text)
    except (TypeError, ValueError) as why:
        raise InputError(f"{text!r} is no number", field=name) from why


def _plan(row: Row) -> Plan:
    figures = {name: number(row, name, 1) for name in ("tp", "pp", "cp", "ep", "vp")}
    tp, pp, cp = (max(1, round(figures[name])) for name in ("tp", "pp", "cp"))
    gpus = number(row, "n_gpus")
    batch, seq = number(row, "global_batch"), number(row, "seq", _named_seq(row))
    for name, value in (("n_gpus", gpus), ("global_batch", batch), ("seq", seq)):
        if not value >= 1:
            raise InputError(f"no {name}", field=name)
    data = round(gpus) // (tp * pp * cp)
    micro = number(row, "micro_batch", max(1.0, batch / max(data, 1) if pp == 1 else 1.0))
    words = " ".join(str(row.get(k) or "") for k in ("framework", "reported_extra", "note"))
    precision = str(row.get("precision") or "").lower()
    dtype = _dtype(precision, words)
    recompute = str(row.get("activation_recompute") or row.get("recompute") or "").lower()
    return Plan(
        gpus=round(gpus),
        global_batch=round(batch),
        micro_batch=max(1, round(micro)),
        seq=round(seq),
        tensor=tp,
        data=max(data, 1),
        pipeline=pp,
        context=cp,
        expert=max(1, round(figures["ep"])),
        virtual=max(1, round(figures["vp"])),
        recompute=_recompute(recompute),
        dtype=dtype,
        flash=dtype not in ("float16", "float32") and "eager" not in words,
        sequence_parallel="sequence" in recompute or dtype not in ("float16", "float32"),
        sharding=_sharding(words),
        overlap=dtype != "float16",
        optimizer="optimizer step excluded" not in str(row.get("iteration_ms_how") or ""),
        frozen="LoRA" in words,
    )


def _named_seq(row: Row) -> float:
    """A sequence length that stands in the model's name: `BERT-base pretrain (seq 128)`."""
    found = re.search(r"seq(?:uence)? ?(?:len(?:gth)?)? ?(\d+)", str(row.get("model") or ""))
    return float(found[1]) if found else math.nan


def _dtype(precision: str, words: str) -> str:
    """Of the linear layers. Half precision named `fp16/bf16` counts as fp16."""
    for sign, dtype in (
        ("fp4", "float4"),
        ("fp8", "float8"),
        ("tf32 on", "tf32"),
        ("fp16", "float16"),
        ("bf16", "bfloat16"),
        ("fp32", "float32"),
        ("tf32", "tf32"),
    ):
        if sign in precision.replace("tf32 state", "").replace("without tf32", ""):
            return dtype
    return "float16" if "fp16" in words.lower() else "bfloat16"


def _recompute(words: str) -> str:
    """`see repo scripts` is Megatron-LM of 2021, whose scripts recompute every layer."""
    if "selective" in words or "sac" in words:
        return "selective"
    signs = ("full", "true", "checkpointing", "scripts")
    return "full" if any(sign in words for sign in signs) else "none"


def _sharding(words: str) -> str:
    if "SHARD_GRAD_OP" in words:
        return "gradients"
    named = re.search(r"FSDP=(\d+)", words)
    if (named and int(named[1]) > 1) or "FULL_SHARD" in words or "FSDP2" in words:
        return "full"
    signs = ("zero_stage 1", "Bridge", "NeMo")
    return "optimizer" if any(sign in words for sign in signs) else "none"


def _model(row: Row, name: str, plan: Plan) -> tuple[Transformer, str]:
    """By the row's shapes, else by the published model's name, else a usual shape of its size."""
    hidden, layers, heads = (number(row, key, 0) for key in ("hidden", "layers", "heads"))
    known = published_models().get(model_key(name))
    params = _params(row, name)
    if hidden and layers and heads:
        model = Transformer(round(hidden), round(layers), round(heads))
        if known is not None and (known.hidden, known.layers) == (model.hidden, model.layers):
            return known, "plan"
        return replace(model, vocab=_vocab(model, params, name)), "plan"
    if known is not None:
        return known, "plan"
    if not params:
        raise InputError(f"shapes and size of {name or 'the model'} are not known")
    usual = shape_of_size(params, plan.pipeline * plan.virtual, round(heads))
    if hidden:
        depth = max(1, round(params / 12 / hidden**2 / plan.pipeline)) * plan.pipeline
        usual = replace(usual, hidden=round(hidden), layers=depth)
    return usual, SHAPE_FROM_SIZE


def _params(row: Row, name: str) -> float:
    stated = number(row, "params_b", 0) * 1e9
    found = re.search(r"params (\d{6,})", str(row.get("note") or ""))
    if not stated and found:
        stated = float(found[1])
    if not stated:
        sized = re.search(r"(\d+(?:\.\d+)?) ?([bm])(?![a-z0-9])", name.lower())
        if sized:
            stated = float(sized[1]) * (1e9 if sized[2] == "b" else 1e6)
    return stated


def _vocab(model: Transformer, params: float, name: str) -> int:
    """From the size of the model, where that is stated finely enough to tell; else the default."""
    rest = params - 12 * model.layers * model.hidden**2
    digits = re.search(r"\d+(\.\d+)?", name)
    unit = 0.5e9 / (10 if digits and digits[1] else 1)
    if not params or rest <= 0 or unit > 0.2 * rest:
        return Transformer.vocab
    vocab = rest / model.hidden
    return round(vocab / 128) * 128 if 16_000 < vocab < 300_000 else Transformer.vocab
