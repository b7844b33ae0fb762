"""Chat templates, rendered in the sandbox and with the names that transformers gives them.

The environment follows ``transformers.utils.chat_template_utils`` (Apache-2.0): an immutable sandbox, the
``{% generation %}`` block, ``raise_exception``, ``strftime_now``, and a ``tojson`` that keeps characters as they
are. Tests compare both on real templates. A template is untrusted code: a time limit per rendering is not
possible inside one process, so loops are bounded by the sandbox's range limit and by the text that goes in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

Spans = list[tuple[int, int]]  # [start, end) in characters of the rendered text

_REASONING = ("reasoning_content", "thinking", "reasoning")


class TemplateRefusedError(ValueError):
    """The template will not render this conversation; the message is the template's own."""


@dataclass(frozen=True)
class Rendered:
    """A rendered conversation, and what the template marks as written by the model."""

    text: str
    generated: Spans


class ChatTemplate:
    """A compiled chat template. ``names`` are what it sees beside the messages: bos_token and the like."""

    def __init__(self, source: str, names: Mapping[str, str]) -> None:
        """Raises TemplateRefusedError where the source is not a Jinja template."""
        self.source = source
        self._names = dict(names)
        self._tracked: tuple[list[str], Spans] | None = None
        environment = _environment(self._track)
        try:
            self._compiled = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise TemplateRefusedError(f"not a template: {error}") from error
        self.marks_generation = any(
            kind == "name" and value == "generation" for _, kind, value in environment.lex(source)
        )

    def render(
        self,
        turns: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Any] | None = None,
        add_generation_prompt: bool = False,
        extra: Mapping[str, Any] | None = None,
    ) -> Rendered:
        """The conversation as text.

        Raises:
            TemplateRefusedError: the template raised (its own words), or met data it cannot handle.
        """
        if not turns:
            raise TemplateRefusedError("the conversation is empty")
        names = {**self._names, **(extra or {})}
        blocks: list[str] = []
        spans: Spans = []
        with self._tracking(blocks, spans):
            try:
                # One block at a time: a generation block must know how much stands before it.
                for block in self._compiled.generate(
                    messages=[_as_seen(turn) for turn in turns],
                    tools=tools,
                    documents=None,
                    add_generation_prompt=add_generation_prompt,
                    **names,
                ):
                    blocks.append(block)  # noqa: PERF402
            except jinja2.TemplateError as error:
                raise TemplateRefusedError(str(error) or type(error).__name__) from error
            except RecursionError as error:
                raise TemplateRefusedError("the template recurses without end") from error
            except Exception as error:  # a template may do anything to odd data: add None, index a string
                raise TemplateRefusedError(f"{type(error).__name__}: {error}") from error
        return Rendered("".join(blocks), spans)

    @contextmanager
    def _tracking(self, blocks: list[str], spans: Spans) -> Iterator[None]:
        self._tracked = (blocks, spans)
        try:
            yield
        finally:
            self._tracked = None

    def _track(self, written: str) -> None:
        if self._tracked is not None:
            blocks, spans = self._tracked
            start = sum(map(len, blocks))
            spans.append((start, start + len(written)))


def _as_seen(turn: Mapping[str, Any]) -> dict[str, Any]:
    """A message as templates get it: without null keys, reasoning under every name that templates read."""
    message = {key: value for key, value in turn.items() if value is not None}
    reasoning = next((message[key] for key in _REASONING if key in message), None)
    return message if reasoning is None else {"thinking": reasoning, **message, "reasoning_content": reasoning}


def _environment(track: Callable[[str], None]) -> jinja2.sandbox.ImmutableSandboxedEnvironment:
    class Generation(jinja2.ext.Extension):
        tags = {"generation"}  # noqa: RUF012 - jinja2 reads this class attribute

        def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            block = jinja2.nodes.CallBlock(self.call_method("_written"), [], [], body)
            return block.set_lineno(line)

        def _written(self, caller: Callable[[], str]) -> str:
            text = caller()
            track(text)
            return text

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = _now
    environment.globals["dict"] = _Dict()
    return environment


class _Dict:
    """What ``dict`` is inside a template: it makes one, and nothing more of the type can be reached."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        """As ``dict.fromkeys``."""
        return dict.fromkeys(*args)


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _now(form: str) -> str:
    """A template that writes today's date gives other text tomorrow: a fixed day keeps a scan repeatable."""
    return _DAY.strftime(form)


_DAY = datetime(2026, 1, 26, tzinfo=timezone.utc)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
